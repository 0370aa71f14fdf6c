"""The event log as it grows: one listener on the database wakes every client that waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice

from registry.protocol import Registry
from registry.values import Event

log = logging.getLogger(__name__)

_LISTEN_SECONDS = 1.0
_PAGE = 200
_REMEMBERED = 1000  # events: who follows closely gets them from here, and the database is read once for all


class Tail:
    """Knows the newest event's sequence. Begun and ended by the app; waited on in its event loop."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        self._registry = registry
        self.newest = 0
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)
        self._changed = asyncio.Condition()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._listen, args=(loop,), name="event-tail", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._ended.set()
        await self._tell(self.newest)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, because the registry's `wait` blocks."""
        while not self._ended.is_set():
            try:
                newest = self._registry().events.position().newest
                if newest != self.newest:
                    found = self._registry().events.after(max(newest - _PAGE, self.newest), limit=_PAGE)
                    asyncio.run_coroutine_threadsafe(self._tell(newest, found), loop).result()
                self._registry().events.wait(newest, _LISTEN_SECONDS)
            except Exception as error:  # whoever waits would wait for ever if this thread ended
                if loop.is_closed():
                    return
                log.warning("the event log cannot be read: %s", error)
                self._ended.wait(_LISTEN_SECONDS)

    async def _tell(self, newest: int, found: Sequence[Event] = ()) -> None:
        async with self._changed:
            is_next = self._recent and found and found[0].sequence == self._recent[-1].sequence + 1
            if newest < self.newest or not is_next:
                self._recent.clear()  # there is a gap, or the database is a restored one
            self._recent.extend(found)
            self.newest = max(newest, found[-1].sequence) if found else newest
            self._changed.notify_all()

    async def wait(self, sequence: int, timeout: float) -> bool:
        """Until there is an event after ``sequence`` (True), or ``timeout`` seconds have passed (False)."""

        async def there() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: self.newest > sequence or self.ended)

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(there(), timeout)
        return self.newest > sequence

    async def follow(self, sequence: int, *, beat: float) -> AsyncIterator[list[Event]]:
        """Events after ``sequence`` as they come; an empty list when there was none for ``beat`` seconds."""
        while not self.ended:
            found = self._remembered(sequence)
            if not found and (sequence < self.newest or not self._recent):
                found = await asyncio.to_thread(self._registry().events.after, sequence, limit=_PAGE)
            if found:
                sequence = found[-1].sequence
                yield found
            elif not await self.wait(sequence, beat):
                yield []

    def _remembered(self, sequence: int) -> list[Event]:
        """What comes after ``sequence``, if all of it is in memory."""
        if not self._recent or not self._recent[0].sequence - 1 <= sequence < self._recent[-1].sequence:
            return []
        skipped = sequence + 1 - self._recent[0].sequence
        return list(islice(self._recent, skipped, skipped + _PAGE))

    def forget(self) -> None:
        """Begin anew, with another registry."""
        self.newest = 0
        self._recent.clear()
