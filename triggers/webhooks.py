"""Webhooks out: one signed POST to an address that was looked at before it is connected to.

Signatures follow Standard Webhooks (https://www.standardwebhooks.com): ``v1,`` and the base64 of
HMAC-SHA256 over ``ID.TIMESTAMP.BODY``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from registry.errors import InvalidSetting
from triggers.errors import InvalidAction, NotificationFailed

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

SECONDS = 15.0  # for all of it: a receiver that answers a byte at a time ends nothing later
_CONNECT_SECONDS = 10.0  # of these, for all addresses of a host together: what cuts it needs a socket to cut
LARGEST_BODY = 1 << 20  # bytes
_MOST_READ = 4096  # bytes of an answer's body, for its error
_SHOWN = 200  # characters of that
_PREFIX = "whsec_"
# Addresses that carry an IPv4 address which a gateway would connect to in their place.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Webhook:
    """What is sent. ``id`` is the same for every attempt."""

    url: str
    id: str
    body: bytes
    headers: Mapping[str, str]


def parse_url(url: str) -> SplitResult:
    """The parts of an address that may be sent to.

    Raises:
        InvalidAction: it is none, or holds a password, which would be kept and shown.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = None
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidAction(
            "A notification's URL is not http://HOST/PATH or https://HOST/PATH.", remedy="Correct the URL."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidAction(
            "A notification's URL holds a name or password, which everybody could read.",
            remedy="Let the receiver check the signature instead: set PODIUM_NOTIFY_SECRET.",
        )
    return parts


def keys_of(secret: str) -> list[bytes]:
    """The keys in a setting: ``whsec_BASE64``, several with spaces while one takes the place of another.

    Raises:
        InvalidSetting: one is not base64, or too short to be secret.
    """
    keys = []
    for each in secret.split():
        try:
            key = base64.b64decode(each.removeprefix(_PREFIX), validate=True)
        except (ValueError, binascii.Error):
            key = b""
        if not 16 <= len(key) <= 64:
            raise InvalidSetting(
                "PODIUM_NOTIFY_SECRET cannot be used: a key is whsec_ and 16 to 64 bytes in base64.",
                remedy='Make one: echo "whsec_$(openssl rand -base64 32)"',
            )
        keys.append(key)
    return keys


def networks_of(text: str) -> list[Network]:
    """The networks in a setting: ``10.0.0.0/8,127.0.0.1``. Raises `InvalidSetting`."""
    try:
        return [ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip()]
    except ValueError as error:
        raise InvalidSetting(
            f"PODIUM_NOTIFY_NETWORKS cannot be used: {error}.", remedy="Write for example: 10.1.0.0/16"
        ) from error


def signed(webhook: Webhook, keys: Sequence[bytes], timestamp: int) -> dict[str, str]:
    """The headers of a webhook that is sent at ``timestamp`` (seconds since 1970)."""
    headers = {**webhook.headers, "webhook-id": webhook.id, "webhook-timestamp": str(timestamp)}
    if keys:
        text = f"{webhook.id}.{timestamp}.".encode() + webhook.body
        digests = (hmac.new(key, text, hashlib.sha256).digest() for key in keys)
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(each).decode()}" for each in digests)
    return headers


def is_allowed(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address is on the public internet, or in a network that a setting names."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if any(found.version == network.version and found in network for network in networks):
        return True
    within = _carried(found)
    if within is not None:
        return is_allowed(str(within), networks)
    return found.is_global and not found.is_multicast


def _carried(address: _Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def resolve(host: str, port: int, networks: Sequence[Network]) -> list[str]:
    """The addresses of a host, each of them one that may be connected to.

    Asked once: a name that means something else a moment later (DNS rebinding) changes nothing.

    Raises:
        InvalidAction: the host is, or has, an address that notifications may not go to.
        NotificationFailed: the name is not known now.
    """
    try:
        found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise NotificationFailed(f"The host '{host[:100]}' is not known: {error}.") from error
    refused = [address for address in found if not is_allowed(address, networks)]
    if refused:
        raise InvalidAction(
            f"'{host[:100]}' is {refused[0]}, and notifications go to public addresses only.",
            remedy="To allow it, set PODIUM_NOTIFY_NETWORKS to its network where triggers run.",
        )
    return list(dict.fromkeys(found))


def send(webhook: Webhook, headers: Mapping[str, str], networks: Sequence[Network]) -> None:
    """POST it, without following redirects.

    Raises:
        InvalidAction: it may not be sent there, or is too large.
        NotificationFailed: it was not taken.
    """
    if len(webhook.body) > LARGEST_BODY:
        raise InvalidAction(
            f"The notification has {len(webhook.body)} bytes; at most {LARGEST_BODY} are sent."
        )
    parts = parse_url(webhook.url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _Pinned(host, port, resolve(host, port, networks), tls=parts.scheme == "https")
    try:
        with _ending_after(connection, SECONDS):
            connection.request("POST", path, webhook.body, dict(headers))
            with connection.getresponse() as answer:
                status, said = answer.status, answer.read(_MOST_READ)
    except (OSError, http.client.HTTPException) as error:
        raise NotificationFailed(
            f"{host} did not take the notification: {error or type(error).__name__}."
        ) from error
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotificationFailed(f"{host} answered the notification with {status}{_because(said)}.")


def _because(said: bytes) -> str:
    text = " ".join(said.decode(errors="replace").split())
    return f": {''.join(c for c in text if c.isprintable())[:_SHOWN]}" if text else ""


class _Pinned(http.client.HTTPConnection):
    """A connection to addresses that were looked up before; the name counts for TLS and ``Host`` alone."""

    def __init__(self, host: str, port: int, addresses: Sequence[str], *, tls: bool) -> None:
        super().__init__(host, port, timeout=SECONDS)
        self.default_port = 443 if tls else 80
        self._addresses = addresses
        self._tls = ssl.create_default_context() if tls else None

    def connect(self) -> None:
        failure: OSError | None = None
        seconds = _CONNECT_SECONDS / max(1, len(self._addresses))
        for address in self._addresses:
            try:
                self.sock = socket.create_connection((address, self.port), seconds)
                break
            except OSError as error:
                failure = error
        else:
            raise failure or OSError("the host has no address")
        self.sock.settimeout(self.timeout)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


@contextmanager
def _ending_after(connection: _Pinned, seconds: float) -> Iterator[None]:
    """Cut the connection after ``seconds``: a timeout of a socket counts from its last byte."""

    def cut() -> None:
        if connection.sock is not None:
            with suppress(OSError):  # the other side was quicker
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
