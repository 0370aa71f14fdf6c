"""The shell around every request: how large it may be, how many may come, who understands whom, and what a
browser may do with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from registry.content.chunking import LARGEST
from registry.errors import BodyTooLarge, InvalidRequest, PodiumError, ServerMismatch, TooManyRequests
from registry.http.allowance import Allowance
from registry.http.answering import problem
from registry.wire import headers

#: Bytes of a JSON body. A manifest of a million chunks is larger than anything else that is sent.
LARGEST_JSON = 64 * 2**20
#: Seconds in which some more of a body has to come.
PATIENCE_SECONDS = 60.0
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
class Failures(Allowance):
    """How often each address may show a wrong token: guesses are slow, and nobody else is held up by them."""

    most: float = 20
    each: float = 3.0


class Shell:
    """ASGI middleware."""

    def __init__(
        self, app: ASGIApp, failures: Failures | None = None, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._app = app
        self._patience = patience
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
        return _limited(receive, most, self._patience)


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


def _limited(receive: Receive, most: int, patience: float) -> Receive:
    seen, whole = 0, False

    async def limited() -> Message:
        nonlocal seen, whole
        if whole:
            return await receive()  # waits for the client to go away, which may take as long as it likes
        try:
            message = await asyncio.wait_for(receive(), patience)
        except TimeoutError as error:
            raise InvalidRequest(
                f"Nothing of the body came for {patience:g} s.", remedy="Send it again."
            ) from error
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > most:
                raise _too_large(most)
        return message

    return limited


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"A request to this address has at most {most} bytes.", remedy="Send less at once.")
