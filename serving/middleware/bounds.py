"""How much of memory and time a client may take, with what it sends and with reading its answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from .asgi import Disconnected, Message, Receive, Scope, Send, header
from .problem import Problem
from .switchboard import Switchboard

BODY_LIMIT_VARIABLE = "PODIUM_ENGINE_BODY_LIMIT"


@dataclass(frozen=True)
class Bounds:
    """Sizes in bytes, times in seconds."""

    body: int = 32 * 1024 * 1024  # an image in a chat fits, a body sent to fill the memory does not
    arriving: int = 512 * 1024 * 1024  # of all bodies that are on their way together
    control_body: int = 1024 * 1024
    header_bytes: int = 32 * 1024
    header_count: int = 100
    patience: float = 20.0  # for a body to arrive, and more for what has arrived: see `slowest`
    slowest: float = 64 * 1024  # bytes a second
    unread: float = 60.0  # for which a client may leave its answer unread

    @classmethod
    def from_environment(cls) -> Bounds:
        """The defaults, with ``PODIUM_ENGINE_BODY_LIMIT``."""
        body = os.environ.get(BODY_LIMIT_VARIABLE)
        return cls(body=int(body)) if body else cls()

    def check_headers(self, scope: Scope) -> None:
        """Raise `Problem` if the request's head is larger than any client's."""
        headers = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > self.header_count or size > self.header_bytes:
            raise Problem(431, "BadRequestError", "The request's headers are too large.")


async def read_body(scope: Scope, receive: Receive, limit: int, bounds: Bounds, board: Switchboard) -> bytes:
    """The request's body, which must arrive in time and within ``limit`` bytes; raises `Problem`.

    ``board`` counts it among what is arriving.
    """
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    board.arriving += 1
    try:
        with Watch(bounds.patience) as watch:
            while True:
                message = await _next(watch, receive)
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part = message.get("body", b"")
                size += len(part)
                board.arriving_bytes += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
                if board.arriving_bytes > bounds.arriving:
                    raise Problem(503, "ServiceUnavailableError", "Too much is arriving at once. Try again.")
                watch.extend(bounds.patience + size / bounds.slowest)
    finally:
        board.arriving -= 1
        board.arriving_bytes -= size


async def _next(watch: Watch, receive: Receive) -> Message:
    try:
        return await receive()
    except asyncio.CancelledError:
        if watch.take_expiry():
            raise Problem(408, "RequestTimeoutError", "The request took too long to arrive.") from None
        raise


class Unread(ConnectionError):
    """The client does not read its answer. (An ``OSError``, as a server raises for one that has left.)"""


async def send_in_time(send: Send, message: Message, seconds: float) -> None:
    """Send, or give up on a client that leaves its answer unread; raises `Unread`.

    It would hold its version in flight, and the end of a drain off, for ever.
    """
    with Watch(seconds) as watch:
        try:
            await send(message)
        except asyncio.CancelledError:
            if watch.take_expiry():
                raise Unread(f"the answer was left unread for {seconds:g} s") from None
            raise


class Watch:
    """Cancels the current task after a time. (``asyncio.timeout`` is not in Python 3.10.)"""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> Watch:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._begun = self._loop.time()
        self._arm(self._seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.cancel()

    def extend(self, seconds: float) -> None:
        """Let it end ``seconds`` after it began."""
        self._handle.cancel()
        self._arm(seconds)

    def take_expiry(self) -> bool:
        """Whether this watch was what cancelled the task; the cancellation is then over."""
        if self._expired and self._task is not None:
            uncancel: Callable[[], int] | None = getattr(self._task, "uncancel", None)  # from Python 3.11 on
            if uncancel is not None:
                uncancel()
        return self._expired

    def _arm(self, seconds: float) -> None:
        self._handle = self._loop.call_at(self._begun + seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()


def _too_large(limit: int) -> Problem:
    return Problem(413, "RequestTooLargeError", f"The body is larger than {limit} bytes.")
