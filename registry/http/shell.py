"""The shell around every request: how large it may be, how many may come, who understands whom, and what a
browser may do with the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from registry.content.chunking import LARGEST
from registry.errors import BodyTooLarge, PodiumError, ServerMismatch, TooManyRequests
from registry.http.answering import problem
from registry.wire import headers

#: Bytes of a JSON body. A manifest of a million chunks is larger than anything else that is sent.
LARGEST_JSON = 64 * 2**20
_LARGEST_CHUNK = LARGEST + 1  # one more, so that the route can say which limit it is
_CHUNKS = f"{headers.PREFIX}/chunks/"

#: No script of ours stands inside a page, and no page of ours inside another's.
_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_SECURITY = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass
class _Bucket:
    left: float
    at: float


@dataclass
class Failures:
    """How often each address may show a wrong token: guesses are slow, and nobody else is held up by them."""

    most: int = 20  # at once
    each: float = 3.0  # seconds after which one more may be made
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allowed(self, address: str) -> bool:
        with self._lock:
            bucket = self._buckets.get(address)
            return bucket is None or self._filled(bucket) >= 1

    def add(self, address: str) -> None:
        with self._lock:
            if len(self._buckets) > 10_000:
                self._buckets.clear()  # so many that they say nothing about any one
            bucket = self._buckets.setdefault(address, _Bucket(self.most, self.clock()))
            bucket.left, bucket.at = self._filled(bucket) - 1, self.clock()

    def _filled(self, bucket: _Bucket) -> float:
        return min(self.most, bucket.left + (self.clock() - bucket.at) / self.each)


class Shell:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, failures: Failures | None = None) -> None:
        self._app = app
        self._failures = failures or Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        outgoing = _Outgoing(send, lambda: self._failures.add(address))
        try:
            limited = self._checked(scope, receive, address)
            await self._app(scope, limited, outgoing.send)
        except PodiumError as error:  # what was refused before any route saw it, or while its body came
            if outgoing.begun:
                raise
            await problem(error)(scope, receive, outgoing.send)

    def _checked(self, scope: Scope, receive: Receive, address: str) -> Receive:
        given = Headers(scope=scope)
        if not self._failures.allowed(address):
            raise TooManyRequests(
                "Too many wrong tokens came from this address.",
                remedy="Wait some seconds, and check PODIUM_TOKEN.",
            )
        level = given.get(headers.LEVEL)
        if level is not None and not (level.isdecimal() and int(level[:9]) >= headers.OLDEST_LEVEL):
            raise ServerMismatch(
                "This client is older than the server understands.",
                remedy="Install the server's version of podium.",
            )
        most = _LARGEST_CHUNK if scope["path"].startswith(_CHUNKS) else LARGEST_JSON
        length = given.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)
        return _limited(receive, most)


class _Outgoing:
    """Adds what every answer carries, and counts wrong tokens."""

    def __init__(self, send: Send, refused: Callable[[], None]) -> None:
        self._send = send
        self._refused = refused
        self.begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            if message["status"] == 401:
                self._refused()
            answer = MutableHeaders(scope=message)
            answer[headers.LEVEL] = str(headers.API_LEVEL)
            for name, value in _SECURITY.items():
                answer.setdefault(name, value)
        await self._send(message)


def _limited(receive: Receive, most: int) -> Receive:
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large(most)
        return message

    return limited


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"A request to this address has at most {most} bytes.", remedy="Send less at once.")
