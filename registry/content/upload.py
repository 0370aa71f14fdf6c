"""Sending a scanned folder's bytes to a store.

Each byte is read once, into a buffer from which both the file's and the chunk's digest are computed and the
chunk is sent: so what the manifest says is what was stored, even of a file that somebody writes to meanwhile
(which is then refused). A crash at any line leaves chunks that no manifest names; pushing again sends only
what is missing.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from registry import crashpoints
from registry.content.blobs import BlobStore, Buffer
from registry.content.buffers import BufferPool, Memory, mapped, workers_for
from registry.content.chunking import LARGEST, cut_plain, cut_safetensors
from registry.content.failing import FirstFailure
from registry.content.manifest import ChunkRef, FileEntry, Manifest
from registry.content.progress import Progress, Silent
from registry.content.safetensors import read_header_through
from registry.content.scan import FileState, Scan, ScannedFile, unreadable
from registry.errors import InvalidContent

_MOST_FILES_AT_ONCE = 4


class ChunkIndex(Protocol):
    """Which chunks the registry already counts on. Called from several threads at once."""

    def present(self, chunks: Collection[ChunkRef]) -> set[str]:
        """Keys of those that are stored and will stay.

        A chunk that was condemned is taken back by this call, or is not in the answer.
        """


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What an upload made, and what it cost."""

    manifest: Manifest
    bytes_sent: int
    chunks_sent: int

    @property
    def bytes_total(self) -> int:
        return self.manifest.size


def upload(
    scan: Scan, store: BlobStore, *, index: ChunkIndex | None = None, progress: Progress | None = None
) -> Uploaded:
    """Store every chunk of ``scan`` that is not stored yet, and return the manifest.

    Without an ``index`` the store alone is asked what is there.

    Raises:
        InvalidContent: a file changed since it was scanned.
        StoreUnavailable, StoreFull: some chunks may have been sent; they need not be sent again.
    """
    return _Upload(scan, store, index, progress or Silent()).run()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A chunk on its way to the store, or one that is there."""

    chunk: ChunkRef
    stored: Future[None] | None = None  # None: it did not have to be sent

    def wait(self) -> ChunkRef:
        """The chunk, once it is stored."""
        if self.stored is not None:
            self.stored.result()
            crashpoints.reached("upload.chunk_stored")
        return self.chunk


class _Upload:
    """One upload. Readers cut and hash files; workers hash and send chunks."""

    def __init__(self, scan: Scan, store: BlobStore, index: ChunkIndex | None, progress: Progress) -> None:
        self._scan = scan
        self._store = store
        self._index = index
        self._progress = progress
        self._lock = threading.Lock()
        self._begun: set[str] = set()  # keys that a worker of this upload has taken on
        self._bytes_sent = self._chunks_sent = 0
        self._failure = FirstFailure()
        self._worker_count = workers_for(local=store.is_local)
        self._reader_count = max(1, min(_MOST_FILES_AT_ONCE, os.cpu_count() or 1, len(scan.files)))
        largest = min(LARGEST, max((file.size for file in scan.files), default=0))
        # A bytearray goes to a socket in one call (see `S3Store`); a disk is faster with mapped memory.
        make = mapped if store.is_local else bytearray
        self._buffers = BufferPool(self._worker_count + self._reader_count, largest, make)

    def run(self) -> Uploaded:
        self._progress.start(self._scan.size)
        # Readers end first: when the workers' pool closes, nobody hands over anything any more.
        with (
            ThreadPoolExecutor(self._worker_count) as self._workers,
            ThreadPoolExecutor(self._reader_count) as pool,
        ):
            files = [pool.submit(self._send_file, file) for file in self._scan.files]
            self._failure.wait_for(files)
        for file in self._scan.files:
            _check_unchanged(file)
        manifest = Manifest(tuple(file.result() for file in files))
        return Uploaded(manifest, self._bytes_sent, self._chunks_sent)

    def _send_file(self, file: ScannedFile) -> FileEntry:
        with self._failure.watching(), _opened(file) as descriptor:
            digest, chunks = self._send_chunks(file, descriptor, _cut(file, descriptor))
            refs = tuple(chunk.result().wait() for chunk in chunks)
            return FileEntry(file.path, file.size, refs[0].key if len(refs) == 1 else digest, refs)

    def _send_chunks(
        self, file: ScannedFile, descriptor: int, sizes: list[int]
    ) -> tuple[str, list[Future[_Sent]]]:
        whole = hashlib.sha256()
        chunks = []
        offset = 0
        for size in sizes:
            buffer = self._buffers.take()
            try:
                view = memoryview(buffer)[:size]
                _read_exactly(file, descriptor, view, offset)
                if len(sizes) > 1:  # else the only chunk's digest is the file's
                    whole.update(view)
            except BaseException:
                self._buffers.give_back(buffer)
                raise
            chunks.append(self._workers.submit(self._send_chunk, buffer, size))
            offset += size
        return whole.hexdigest(), chunks

    def _send_chunk(self, buffer: Memory, size: int) -> _Sent:
        try:
            with self._failure.watching():
                data: Buffer = memoryview(buffer)[:size]
                if isinstance(buffer, bytearray) and size == len(buffer):
                    data = buffer
                chunk = ChunkRef(hashlib.sha256(data).hexdigest(), size)
                sent = _Sent(chunk)
                if self._is_first(chunk) and self._is_missing(chunk):
                    sent = _Sent(chunk, self._store.put_soon(chunk.key, data, digested=True))
                    self._count(size)
        finally:
            self._buffers.give_back(buffer)
        self._progress.advance(size)
        return sent

    def _is_first(self, chunk: ChunkRef) -> bool:
        """Whether no other worker has the same bytes. If that one fails, so does the upload."""
        with self._lock:
            if chunk.key in self._begun:
                return False
            self._begun.add(chunk.key)
            return True

    def _is_missing(self, chunk: ChunkRef) -> bool:
        if self._index is not None and self._index.present([chunk]):
            return False
        # Not in the index, but perhaps sent by an upload that was broken off.
        return bool(self._store.missing([chunk.key], {chunk.key: chunk.size}))

    def _count(self, size: int) -> None:
        with self._lock:
            self._bytes_sent += size
            self._chunks_sent += 1


@contextmanager
def _opened(file: ScannedFile) -> Iterator[int]:
    try:
        # A link put there since the scan is not followed.
        descriptor = os.open(file.source, os.O_RDONLY | os.O_NOFOLLOW)
    except PermissionError as error:
        raise unreadable(file.path, error) from error
    except OSError as error:
        raise _changed(file) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _cut(file: ScannedFile, descriptor: int) -> list[int]:
    """Sizes of the file's chunks. What claims to be safetensors and is not is cut like any other file."""
    if file.path.endswith(".safetensors"):

        def read(start: int, length: int) -> bytes:
            return os.pread(descriptor, length, start)

        with suppress(InvalidContent):
            return cut_safetensors(read_header_through(read, file.size, name=file.path), file.size)
    return cut_plain(file.size)


def _read_exactly(file: ScannedFile, descriptor: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < view.nbytes:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            raise _changed(file)
        done += count


def _check_unchanged(file: ScannedFile) -> None:
    try:
        state = FileState.of(file.source.lstat())
    except OSError as error:
        raise _changed(file) from error
    if state != file.state:
        raise _changed(file)


def _changed(file: ScannedFile) -> InvalidContent:
    return InvalidContent(
        f"{file.path} changed while it was pushed.",
        remedy="Push again when nothing writes to it any more; what was sent is kept.",
        path=file.path,
    )
