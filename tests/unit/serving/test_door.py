"""Who is let through the middleware, within which bounds of size and time, and what is counted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from registry.operations import hash_key, make_key
from serving.middleware import BODY_LIMIT_VARIABLE, AliasMiddleware, Bounds, Fence, RouteMap
from tests.common.doors import ROUTES, TOKEN, Echo, Reply, call, map_body, routed

ID, KEY = make_key()
GUARDED = replace(ROUTES, keys={ID: hash_key(KEY)})
BODY = {"model": "bot", "prompt": "hello"}


def ask(app: AliasMiddleware, key: str | None, path: str = "/v1/completions", method: str = "POST") -> Reply:
    headers = [] if key is None else [(b"authorization", key.encode())]
    body = BODY if method == "POST" else None
    return asyncio.run(call(app, method, path, body, headers=[*headers, (b"x-other", b"1")]))


def test_a_good_key_is_answered_and_goes_no_further_than_the_door() -> None:
    class Watching(Echo):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            assert b"authorization" not in dict(scope["headers"])
            await super().__call__(scope, receive, send)

    echo = Watching()
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert ask(routed(echo, GUARDED), f"{scheme} {KEY}").status == 200
    assert len(echo.seen) == 3


BAD_KEYS = [
    None,
    "",
    "Bearer",
    "Bearer ",
    f"Basic {KEY}",
    KEY,
    "Bearer sk-1234",
    f"Bearer podium-{ID}-",
    f"Bearer podium-{ID}-{'x' * 43}",
    f"Bearer podium-00000000-{KEY.split('-', 2)[2]}",
    f"Bearer {KEY}x",
    f"Bearer {KEY[:-1]}",
    f"Bearer {hash_key(KEY)}",
    "Bearer \N{SNOWMAN}",
]


@pytest.mark.parametrize("key", BAD_KEYS, ids=[str(i) for i in range(len(BAD_KEYS))])
def test_a_bad_key_is_refused_in_the_shape_that_openai_clients_read(key: str | None) -> None:
    echo = Echo()
    app = routed(echo, GUARDED)
    reply = ask(app, key)
    assert reply.status == 401
    assert reply.headers[b"www-authenticate"] == b"Bearer"
    error = reply.json["error"]
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "invalid_api_key",
        None,
    )
    assert KEY not in error["message"]
    assert not echo.seen and app.switchboard.state()["refused"] == {"401": 1}


def test_every_path_of_clients_but_health_needs_a_key() -> None:
    for method, path, status in (
        ("GET", "/v1/models", 401),
        ("GET", "/version", 401),
        ("POST", "/v1/chat/completions", 401),
        ("POST", "/v1/embeddings", 401),
        ("POST", "/tokenize", 401),
        ("GET", "/health", 200),
    ):
        assert ask(routed(routes=GUARDED), None, path, method).status == status, path
        assert ask(routed(routes=GUARDED), f"Bearer {KEY}", path, method).status == 200, path


def test_without_keys_whoever_reaches_it_is_answered() -> None:
    assert ask(routed(), None).status == 200
    assert ask(routed(), "Bearer of news").status == 200


def test_when_all_keys_are_revoked_nobody_is_answered() -> None:
    assert ask(routed(routes=replace(ROUTES, keys={})), f"Bearer {KEY}").status == 401


def test_a_key_opens_no_control_path() -> None:
    for path in ("/podium/state", "/podium/map", "/v1/load_lora_adapter", "/metrics"):
        assert ask(routed(routes=GUARDED), f"Bearer {KEY}", path).status == 404


def test_keys_change_with_the_map_and_a_request_is_judged_when_it_is_whole() -> None:
    async def work() -> None:
        app = routed(routes=GUARDED)
        revoked = replace(GUARDED, fence=Fence(1, 1, 2), keys={})
        whole = json.dumps(BODY).encode()
        parts = [whole[:4], whole[4:]]
        sent: list[Any] = []

        async def receive() -> Any:
            part = parts.pop(0)
            if not parts:  # the key is revoked while the body is on its way
                assert (
                    await call(app, "PUT", "/podium/map", map_body(app, revoked), token=TOKEN)
                ).status == 200
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {KEY}".encode())]
        await app(
            {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}, receive, send
        )
        assert sent[0]["status"] == 401

    asyncio.run(work())


def test_a_map_keeps_its_keys_over_the_wire() -> None:
    for routes in (ROUTES, GUARDED, replace(ROUTES, keys={})):
        assert RouteMap.parse(json.loads(json.dumps(routes.to_json()))) == routes


@pytest.mark.parametrize(
    "headers",
    [
        [(f"x-{number}".encode(), b"1") for number in range(101)],
        [(b"x-large", b"x" * 40_000)],
        [(b"authorization", b"Bearer " + b"x" * 40_000)],
    ],
    ids=["many", "large", "key"],
)
def test_headers_that_no_client_needs_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    reply = asyncio.run(call(routed(), body=BODY, headers=headers))
    assert (reply.status, reply.headers[b"connection"]) == (431, b"close")


def stalling(after: bytes, app: AliasMiddleware) -> Any:
    """The replies to a client that sends the beginning of a body and then nothing."""

    async def work() -> list[Any]:
        sent: list[Any] = []
        parts = [after]

        async def receive() -> Any:
            if not parts:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": parts.pop(), "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        async with asyncio.timeout(5):
            await app(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        return sent

    return asyncio.run(work())


def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:
    app = routed(bounds=Bounds(patience=0.01))
    sent = stalling(b"{", app)
    assert sent[0]["status"] == 408
    assert dict(sent[0]["headers"])[b"connection"] == b"close"
    assert (app.switchboard.arriving, app.switchboard.arriving_bytes) == (0, 0)


def test_what_has_arrived_buys_time_for_the_rest() -> None:
    async def work() -> Reply:
        app = routed(bounds=Bounds(patience=0.02, slowest=1000))
        slow = json.dumps({**BODY, "prompt": "x" * 3000}).encode()
        parts = [slow[:1000], slow[1000:]]
        sent: list[Any] = []

        async def receive() -> Any:
            if len(parts) == 1:
                await asyncio.sleep(0.2)  # longer than its patience, shorter than 1000 bytes may take
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        await app(scope, receive, send)
        return Reply(sent[0]["status"], {}, b"", 0)

    assert asyncio.run(work()).status == 200


def test_bodies_that_together_would_fill_the_memory_are_put_off() -> None:
    app = routed(bounds=Bounds(arriving=1000))
    app.switchboard.arriving_bytes = 900
    reply = asyncio.run(call(app, body={**BODY, "prompt": "x" * 500}, pieces=2))
    assert (reply.status, reply.headers[b"retry-after"]) == (503, b"1")
    assert app.switchboard.arriving_bytes == 900
    app.switchboard.arriving_bytes = 0
    assert asyncio.run(call(app, body={**BODY, "prompt": "x" * 500}, pieces=2)).status == 200


def test_an_answer_that_is_left_unread_is_no_longer_in_flight() -> None:
    async def work() -> None:
        app = routed(Echo(parts=3), bounds=Bounds(unread=0.01))

        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(BODY).encode(), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        await asyncio.wait_for(app(scope, receive, send), 5)
        assert app.switchboard.in_flight == {}

    asyncio.run(work())


def test_a_cancelled_request_is_cancelled_and_not_taken_for_a_slow_one() -> None:
    async def work() -> None:
        app = routed()

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            raise AssertionError("it was answered")

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        task = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert app.switchboard.arriving == 0

    asyncio.run(work())


def test_answers_are_counted_by_name_version_and_status() -> None:
    class Failing(Echo):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if json.loads((await receive())["body"])["prompt"] == "fail":
                await send({"type": "http.response.start", "status": 500, "headers": []})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                raise RuntimeError("broken before it began")

    app = routed(Failing())
    asyncio.run(call(app, body={"model": "bot", "prompt": "fail"}))
    with pytest.raises(RuntimeError):
        asyncio.run(call(app, body={"model": "bot:v1", "prompt": "break"}))
    ended = {tuple(each[:3]): each[3] for each in app.switchboard.state()["ended"]}
    assert ended == {("bot", "bot:v2", 500): 1, ("bot:v1", "bot:v1", 499): 1}
    assert all(each[4] >= 0 for each in app.switchboard.state()["ended"])


def test_a_model_that_is_named_twice_is_read_once() -> None:
    echo = Echo()
    raw = b'{"model": "bot:v1", "prompt": "x", "model": "bot:v2"}'
    reply = asyncio.run(call(routed(echo), raw=raw))
    assert reply.headers[b"x-podium-version"] == b"bot:v2"
    assert echo.seen == [{"model": "bot:v2", "prompt": "x"}]


def test_the_bound_on_bodies_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BODY_LIMIT_VARIABLE, "100")
    assert asyncio.run(call(routed(), body={**BODY, "prompt": "x" * 200})).status == 413
