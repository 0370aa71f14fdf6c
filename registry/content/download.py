"""Writing a version's files into a folder: the whole folder or none, each digest verified.

Files are written aside, next to the destination, and get their name in one rename after all of them are
durable. They are copies: never links into the store or the cache, which the receiver could write through.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import secrets
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

from registry import crashpoints
from registry.content.blobs import BlobStore
from registry.content.blobs.committing import sync_folder
from registry.content.blobs.local import write_all
from registry.content.buffers import BufferPool, Memory, workers_for
from registry.content.cache import ChunkCache
from registry.content.failing import FirstFailure
from registry.content.manifest import ChunkRef, FileEntry, Manifest
from registry.content.progress import Progress, Silent
from registry.content.reading import ChunkSource, damaged_file
from registry.errors import ContentDamaged, InvalidInput, PodiumError, StoreFull

_MOST_FILES_AT_ONCE = 4
_PARTIAL = ".partial"
_FLUSH_FROM = 8 << 20  # bytes: such chunks go to the disk while others are hashed, not all at the file's end

#: Chunks of one file on their way, in its order: when it is written, in which buffer, how large.
_Pending = deque[tuple[Future[None], Memory, int]]


def materialise(
    manifest: Manifest,
    destination: Path,
    store: BlobStore,
    *,
    cache: ChunkCache | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the files of ``manifest`` into the folder ``destination``, which must not exist or be empty.

    Raises:
        InvalidInput: there is something at the destination, or it cannot be written.
        ContentDamaged: a chunk is missing or damaged in the store; the message names file and chunk.
        StoreUnavailable, StoreFull: nothing is left at the destination.
    """
    destination = destination.absolute()
    _check_destination(destination)
    with _translated(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(destination)
        aside, lock = _folder_aside(destination)
        try:
            _Download(aside, ChunkSource(store, cache), progress or Silent()).run(manifest)
            _sync_folders(aside)
            crashpoints.reached("download.written")
            aside.rename(destination)
            sync_folder(destination.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        finally:
            _unlock(lock)


def _folder_aside(destination: Path) -> tuple[Path, int | None]:
    """A new folder next to the destination, and its lock, which says that somebody still writes there."""
    while True:
        aside = destination.parent / f".{destination.name}.{secrets.token_hex(4)}{_PARTIAL}"
        aside.mkdir()
        lock = _lock(aside, wait=True)
        if aside.exists():
            return aside, lock
        _unlock(lock)  # another download took it for abandoned, before it was locked


def _remove_abandoned(destination: Path) -> None:
    """Remove what killed downloads to the same place have left: nobody holds the locks of those."""
    for left in destination.parent.glob(f".{glob.escape(destination.name)}.*{_PARTIAL}"):
        lock = _lock(left, wait=False)
        if lock is not None:
            shutil.rmtree(left, ignore_errors=True)
            _unlock(lock)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """A lock that ends with its process; None where another has it, or the file system knows no locks."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except BaseException:
            os.close(opened)
            raise
    return None


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _check_destination(destination: Path) -> None:
    if destination.is_symlink() or (destination.exists() and not destination.is_dir()):
        raise InvalidInput(f"{destination} is there and is not a folder.", remedy="Name a new folder.")
    if destination.is_dir() and any(destination.iterdir()):
        raise InvalidInput(f"The folder {destination} is not empty.", remedy="Name a new or an empty folder.")


class _Download:
    """One download. Each file has a thread that hashes it in order; workers fetch chunks and write them."""

    def __init__(self, folder: Path, source: ChunkSource, progress: Progress) -> None:
        self._folder = folder
        self._source = source
        self._progress = progress
        self._failure = FirstFailure()

    def run(self, manifest: Manifest) -> None:
        workers = workers_for(local=self._source.store.is_local)
        at_once = max(1, min(_MOST_FILES_AT_ONCE, os.cpu_count() or 1, len(manifest.files)))
        largest = max((chunk.size for chunk in manifest.chunks().values()), default=0)
        # One buffer more for each file, for what is being hashed while the workers are busy.
        self._buffers = BufferPool(workers + at_once, largest)
        self._progress.start(manifest.size)
        with (
            ThreadPoolExecutor(workers) as self._workers,
            ThreadPoolExecutor(1) as self._flusher,
            ThreadPoolExecutor(at_once) as pool,
        ):
            files = [pool.submit(self._write_file, entry) for entry in manifest.files]
            self._failure.wait_for(files)

    def _write_file(self, entry: FileEntry) -> None:
        with self._failure.watching(), _naming(entry):
            path = self._folder / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb", buffering=0) as file:
                self._write_verified(entry, file.fileno())
                os.fsync(file.fileno())

    def _write_verified(self, entry: FileEntry, file: int) -> None:
        if self._write_chunks(entry, file) == entry.sha256:
            return
        # Chunks are only verified like this, by the file that comes of them: find the damaged, and try again.
        if self._drop_damaged(entry) and self._write_chunks(entry, file) == entry.sha256:
            return
        raise damaged_file(entry)

    def _write_chunks(self, entry: FileEntry, file: int) -> str:
        """Write all chunks at their places and return the digest of the file."""
        whole = hashlib.sha256()
        pending: _Pending = deque()
        flushes: list[Future[None]] = []
        try:
            for offset, chunk in entry.spans():
                buffer = self._take_buffer(whole, pending)
                fetched = self._workers.submit(self._fetch, entry, chunk, buffer, file, offset)
                pending.append((fetched, buffer, chunk.size))
                if chunk.size >= _FLUSH_FROM:
                    flushes.append(self._flusher.submit(_flush_after, fetched, file))
            while pending:
                self._hash_next(whole, pending)
            for flush in flushes:
                flush.result()
        finally:
            # The file stays open until nobody does anything to it.
            wait([fetched for fetched, _, _ in pending] + flushes)
            for _, buffer, _ in pending:
                self._buffers.give_back(buffer)
        return whole.hexdigest()

    def _take_buffer(self, whole: hashlib._Hash, pending: _Pending) -> Memory:
        """A free buffer.

        While there is none this file's own are hashed and so freed: if each file only waited for the others'
        buffers, all would wait for ever.
        """
        while (buffer := self._buffers.take_if_free()) is None:
            if not pending:
                return self._buffers.take()
            self._hash_next(whole, pending)
        return buffer

    def _hash_next(self, whole: hashlib._Hash, pending: _Pending) -> None:
        fetched, buffer, size = pending[0]
        fetched.result()
        whole.update(memoryview(buffer)[:size])
        pending.popleft()
        self._buffers.give_back(buffer)
        self._progress.advance(size)

    def _fetch(self, entry: FileEntry, chunk: ChunkRef, buffer: Memory, file: int, offset: int) -> None:
        with self._failure.watching(), _naming(entry):
            view = memoryview(buffer)[: chunk.size]
            self._source.read_into(chunk, view)
            write_all(file, view, offset)

    def _drop_damaged(self, entry: FileEntry) -> bool:
        """Whether a chunk of the file was damaged in the cache; raises if one is in the store."""
        buffer = memoryview(bytearray(max((chunk.size for chunk in entry.chunks), default=0)))
        dropped = [self._source.drop_damaged(chunk, buffer[: chunk.size]) for chunk in entry.chunks]
        return any(dropped)


def _flush_after(fetched: Future[None], file: int) -> None:
    if fetched.exception() is None:
        os.fdatasync(file)


@contextmanager
def _naming(entry: FileEntry) -> Iterator[None]:
    """Say in what happens to a chunk which file it is of."""
    try:
        yield
    except ContentDamaged as error:
        if "path" in error.details:
            raise
        details = {**error.details, "path": entry.path}
        raise ContentDamaged(f"{entry.path}: {error.message}", remedy=error.remedy, **details) from error


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        sync_folder(Path(folder))


@contextmanager
def _translated(destination: Path) -> Iterator[None]:
    try:
        yield
    except PodiumError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(
                f"There is no room for {destination}.", remedy="Make room on that disk, or name another."
            ) from error
        raise InvalidInput(
            f"{destination} cannot be written: {error.strerror}", remedy="Check the path and its permissions."
        ) from error
