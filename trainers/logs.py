"""What a run prints, kept within bounds: all up to a size, then the end and how much is missing between."""

from __future__ import annotations

from collections import deque

HEAD = 4 * 2**20  # bytes that are kept from the beginning
TAIL = 2**20  # bytes that are kept from the end


class BoundedLog:
    """Takes bytes of any kind; gives out what is to be stored."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._room = head
        self._tail_size = tail
        self._ready: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Take what was printed."""
        now, later = data[: self._room], data[self._room :]
        self._room -= len(now)
        if now:
            self._ready.append(now)
        if later:
            self._tail.append(later)
            self._in_tail += len(later)
            self._trim()

    def _trim(self) -> None:
        """Drop from the older end what is more than the tail's size."""
        while self._in_tail > self._tail_size:
            surplus = self._in_tail - self._tail_size
            oldest = self._tail.popleft()
            if len(oldest) > surplus:
                self._tail.appendleft(oldest[surplus:])
            dropped = min(surplus, len(oldest))
            self._dropped += dropped
            self._in_tail -= dropped

    def take(self) -> bytes:
        """What is to be stored now."""
        ready, self._ready = b"".join(self._ready), []
        return ready

    def close(self) -> bytes:
        """The rest, when nothing more will come."""
        parts = [self.take()]
        if self._dropped:
            parts.append(f"\n[... {self._dropped:,} bytes of output are not kept ...]\n".encode())
        parts += self._tail
        return b"".join(parts)
