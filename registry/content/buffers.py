"""Memory for chunks on their way, reused, so that large files take no more of it than small ones."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from queue import Empty, LifoQueue

#: Memory of a fixed size that can be read into and written from.
Memory = bytearray | mmap.mmap


def mapped(size: int) -> Memory:
    """Memory that the system gives page by page as it is filled, in huge pages where it has them.

    To fill a ``bytearray`` with zeros first takes 20 ms for the largest chunk, which shows in a local copy.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class BufferPool:
    """A fixed number of buffers of ``size`` bytes (at least), made when they are first taken."""

    def __init__(self, count: int, size: int, make: Callable[[int], Memory] = mapped) -> None:
        self._size = max(1, size)
        self._make = make
        # Last in, first out: a transfer of small files keeps using the same few pages.
        self._free: LifoQueue[Memory | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)

    def take(self) -> Memory:
        """A buffer with anything in it; waits until one is free."""
        return self._made(self._free.get())

    def take_if_free(self) -> Memory | None:
        """A buffer, or None when all are in use."""
        try:
            return self._made(self._free.get_nowait())
        except Empty:
            return None

    def give_back(self, buffer: Memory) -> None:
        self._free.put(buffer)

    def _made(self, buffer: Memory | None) -> Memory:
        return self._make(self._size) if buffer is None else buffer


def workers_for(*, local: bool) -> int:
    """How many chunks to move at a time: on this machine some wait for the disk, over a network most wait."""
    return min(8, max(4, os.cpu_count() or 1)) if local else 8
