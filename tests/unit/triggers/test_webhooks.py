"""Webhooks out: signed as Standard Webhooks says, to allowed addresses alone, bounded."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from registry.errors import InvalidSetting
from tests.common.receiver import Receiver, receiving
from triggers import webhooks
from triggers.errors import InvalidAction, NotificationFailed
from triggers.webhooks import Webhook, is_allowed, keys_of, networks_of, parse_url, resolve, send, signed

HERE = networks_of("127.0.0.0/8, ::1")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def hook(url: str, body: bytes = b'{"id": 1}') -> Webhook:
    return Webhook(url, "msg_1", body, {"content-type": "application/json"})


def test_a_signature_is_checked_with_the_secret_as_the_standard_says(receiver: Receiver) -> None:
    """The vector is the standard's own."""
    known = Webhook("", "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', {})
    keys = keys_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed(known, keys, 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    sent = hook(f"{receiver.url}/hook?a=b")
    send(sent, signed(sent, keys, 1_700_000_000), HERE)
    (taken,) = receiver.taken
    assert (taken.path, taken.body) == ("/hook?a=b", sent.body)
    text = b"msg_1." + taken.headers["webhook-timestamp"].encode() + b"." + taken.body
    digest = base64.b64encode(hmac.new(keys[0], text, hashlib.sha256).digest()).decode()
    assert taken.headers["webhook-signature"] == f"v1,{digest}"
    assert taken.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_of_two_secrets_both_sign_and_without_one_nothing_does() -> None:
    both = keys_of(
        "whsec_" + base64.b64encode(b"a" * 32).decode() + " " + base64.b64encode(b"b" * 32).decode()
    )
    assert len(signed(hook("http://a/"), both, 1)["webhook-signature"].split()) == 2
    assert "webhook-signature" not in signed(hook("http://a/"), [], 1)


@pytest.mark.parametrize("secret", ["hunter2", "whsec_" + base64.b64encode(b"short").decode(), "whsec_%%%"])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        keys_of(secret)
    assert secret not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1"),
        *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "192.0.2.1", "240.0.0.1"),
    ],
)
def test_private_and_loopback_addresses_are_no_place_for_a_webhook(address: str) -> None:
    assert not is_allowed(address, [])
    assert is_allowed(address, networks_of("0.0.0.0/0,::/0"))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are(address: str) -> None:
    assert is_allowed(address, [])


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "localhost", "[::1]"])
def test_no_way_of_writing_an_address_gets_around_it(receiver: Receiver, host: str) -> None:
    with pytest.raises((InvalidAction, NotificationFailed)):
        send(hook(f"http://{host}:{receiver.port}/"), {}, [])
    assert receiver.taken == []


def test_a_host_of_which_one_address_is_private_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(None, None, None, "", (each, 80)) for each in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    with pytest.raises(InvalidAction, match=r"10\.0\.0\.1"):
        resolve("example.org", 80, [])


def test_what_was_looked_up_is_what_is_connected_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that means another address when it is asked for again (DNS rebinding) is not asked for again."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *rest: Any, **options: Any) -> Any:
        asked.append(host)
        if host != "hook.example":
            return real(host, *rest, **options)
        return real("127.0.0.1" if asked.count(host) == 1 else "127.0.0.2", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    send(hook(f"http://hook.example:{receiver.port}/"), {}, HERE)
    assert asked.count("hook.example") == 1
    assert receiver.taken[0].headers["host"] == f"hook.example:{receiver.port}"


def test_addresses_that_do_not_answer_take_no_longer_together_than_one_notification_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = []

    def silent(address: Any, timeout: float) -> Any:
        waited.append(timeout)
        raise TimeoutError("timed out")

    found = [(0, 0, 0, "", (f"127.0.0.{n}", 80)) for n in range(1, 9)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(NotificationFailed, match="timed out"):
        send(hook("http://slow.example/"), {}, HERE)
    assert len(waited) == 8 and sum(waited) < webhooks.SECONDS


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [302], {"location": f"{receiver.url}/elsewhere"}
    with pytest.raises(NotificationFailed, match="302"):
        send(hook(receiver.url), {}, HERE)
    assert [each.path for each in receiver.taken] == ["/"]


def test_an_answer_that_says_no_is_told_in_one_bounded_line(receiver: Receiver) -> None:
    receiver.statuses, receiver.says = [500], b"no\n\x1b[31mroom " + b"x" * 100_000
    with pytest.raises(NotificationFailed) as failed:
        send(hook(receiver.url), {}, HERE)
    assert "500: no [31mroom xxx" in str(failed.value)
    assert len(str(failed.value)) < 500


def test_a_receiver_that_never_ends_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "SECONDS", 0.3)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def dripping() -> None:
            found, _ = server.accept()
            with found:
                while not done.wait(0.02):
                    try:
                        found.sendall(b"H")  # each byte begins a timeout of a socket anew
                    except OSError:
                        return

        thread = threading.Thread(target=dripping)
        thread.start()
        try:
            with pytest.raises(NotificationFailed):
                send(hook(f"http://127.0.0.1:{server.getsockname()[1]}/"), {}, HERE)
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a/", "http:///x", "http://a:0/", "http://a:99999/", "http://u:p@a/", "https://[::1/"),
        *("http://a/\r\nx: y", "http://a b/", "//a", "file:///etc/passwd"),
    ],
)
def test_a_url_that_cannot_be_sent_to_is_refused_when_it_is_declared(url: str) -> None:
    with pytest.raises(InvalidAction):
        parse_url(url)


def test_what_is_too_large_is_not_sent(receiver: Receiver) -> None:
    with pytest.raises(InvalidAction, match="at most"):
        send(hook(receiver.url, b"x" * (webhooks.LARGEST_BODY + 1)), {}, HERE)
    assert receiver.taken == []
