"""Chunks of a remote store kept on this machine, so that each is fetched once.

    ROOT/chunks/ab/abcd...   a chunk; its modification time is when it was last used
    ROOT/aside/              chunks being written
    ROOT/lock                held while old chunks are removed

Several processes may share it. What is in it is not trusted: it is neither verified when it is added nor
written durably, since a disk can damage it later anyway. Whoever reads a whole file from it verifies that,
and calls `drop` for what was damaged. The cache is a help: what fails here never fails a pull.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from registry.content.blobs import Buffer
from registry.content.blobs.local import write_all

_log = logging.getLogger(__name__)

_KEEP = 0.9  # of the limit, when old chunks are removed: so that this is not done at every addition
_LOOK_AFTER = 0.05  # of the limit: bytes that one process adds before it looks at the total again
_LEFTOVER_AFTER = 3600  # seconds


@dataclass(frozen=True, slots=True)
class Cached:
    """A file in the cache's folder."""

    path: Path
    size: int  # bytes
    used: float  # seconds since the epoch


class ChunkCache:
    """At most ``limit`` bytes of chunks in a folder, the least recently used removed first."""

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        self._lock = threading.Lock()
        self._added: int | None = None  # bytes since the total was last looked at; None: never

    def read_into(self, key: str, buffer: memoryview) -> bool:
        """Fill ``buffer`` with the chunk, unverified; False when it is not here, or not of that size."""
        with self._opened(key) as file:
            if file is None or os.fstat(file).st_size != buffer.nbytes:
                return False
            os.utime(file)
            return os.preadv(file, [buffer], 0) == buffer.nbytes
        return False

    def read(self, key: str, start: int, length: int) -> bytes | None:
        """Bytes of the chunk, unverified; None when it is not here."""
        with self._opened(key) as file:
            if file is not None:
                os.utime(file)
                return os.pread(file, length, start)
        return None

    @contextmanager
    def _opened(self, key: str) -> Iterator[int | None]:
        """The chunk's descriptor, or None. An error of the disk inside the block ends the block."""
        try:
            file = os.open(self._path(key), os.O_RDONLY)
        except OSError:
            yield None
            return
        try:
            with suppress(OSError):
                yield file
        finally:
            os.close(file)

    def add(self, key: str, data: Buffer) -> None:
        """Keep a chunk."""
        size = memoryview(data).nbytes
        if size > self._limit:
            return
        try:
            self._write(self._path(key), data)
            self._make_room(size)
        except OSError as error:
            _log.warning("The chunk cache %s cannot be written: %s", self._root, error)

    def _write(self, final: Path, data: Buffer) -> None:
        aside = self._root / "aside" / f"{final.name}.{secrets.token_hex(6)}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("xb", buffering=0) as file:
                write_all(file.fileno(), memoryview(data))
            aside.rename(final)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def drop(self, key: str) -> None:
        """Forget a chunk, because it is damaged."""
        with suppress(OSError):
            self._path(key).unlink()

    def _make_room(self, added: int) -> None:
        with self._lock:
            total = None if self._added is None else self._added + added
            look = total is None or total > self._limit * _LOOK_AFTER
            self._added = 0 if look else total
        if look:
            self._remove_old()

    def _remove_old(self) -> None:
        with (self._root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another process is at it
            for cached in to_remove(list(self._list()), self._limit, time.time()):
                cached.path.unlink(missing_ok=True)

    def _list(self) -> Iterator[Cached]:
        for folder, _, names in os.walk(self._root):
            for path in (Path(folder, name) for name in names if name != "lock"):
                with suppress(FileNotFoundError):
                    status = path.stat()
                    yield Cached(path, status.st_size, status.st_mtime)

    def _path(self, key: str) -> Path:
        return self._root / "chunks" / key[:2] / key


def to_remove(cached: list[Cached], limit: int, now: float) -> Iterator[Cached]:
    """What has to go, least recently used first: nothing below the limit, above it a tenth more than needed.

    Files aside are other processes' chunks on their way, and leftovers of a crash after an hour.
    """
    aside = [each for each in cached if each.path.parent.name == "aside"]
    yield from (each for each in aside if each.used < now - _LEFTOVER_AFTER)
    chunks = sorted((each for each in cached if each.path.parent.name != "aside"), key=lambda each: each.used)
    total = sum(each.size for each in chunks)
    if total <= limit:
        return
    for each in chunks:
        if total <= limit * _KEEP:
            return
        total -= each.size
        yield each
