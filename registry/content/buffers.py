"""Memory for chunks on their way, reused, so that large files take no more of it than small ones."""

from __future__ import annotations

import os
from queue import Empty, LifoQueue

from registry.content.chunking import LARGEST


class BufferPool:
    """A fixed number of buffers of ``size`` bytes, made when they are first taken.

    Making one fills it with zeros, 20 ms for the largest chunk: so a transfer of small files asks for less.
    """

    def __init__(self, count: int, size: int = LARGEST) -> None:
        self._size = max(1, min(size, LARGEST))
        # Last in, first out: a transfer of small files keeps using the same few pages.
        self._free: LifoQueue[bytearray | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)

    def take(self) -> bytearray:
        """A buffer with anything in it; waits until one is free."""
        return self._made(self._free.get())

    def take_if_free(self) -> bytearray | None:
        """A buffer, or None when all are in use."""
        try:
            return self._made(self._free.get_nowait())
        except Empty:
            return None

    def give_back(self, buffer: bytearray) -> None:
        self._free.put(buffer)

    def _made(self, buffer: bytearray | None) -> bytearray:
        return bytearray(self._size) if buffer is None else buffer


def workers_for(*, local: bool) -> int:
    """How many chunks to move at a time.

    On this machine more than it has processors only takes memory. Over a network most of the time is waiting.
    """
    return min(8, max(2, os.cpu_count() or 2)) if local else 8
