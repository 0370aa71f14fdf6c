"""Chunks in a folder.

ROOT/chunks/ab/cd/abcd...   a chunk, complete and durable from the moment it has this name
ROOT/aside/                 chunks being written; what a crash leaves here is removed a day later
ROOT/store.json             which store this is, and which database it belongs to
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from registry.content.blobs.committing import Committer, sync_folder
from registry.content.blobs.store import (
    BlobInfo,
    Buffer,
    Mark,
    check_digest,
    claim_by_mark,
    done,
    missing_chunk,
    read_mark,
    wrong_size,
)
from registry.errors import PodiumError, StoreFull, StoreUnavailable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# For larger writes Linux looks for memory in larger folios: measured on ext4, 1 MiB at once costs up to twice
# the processor time, 64 MiB up to five times.
_PIECE = 256 << 10
_LEFTOVER_AFTER = 24 * 3600  # seconds; no chunk takes that long to write


class LocalStore:
    """A `BlobStore` in a folder, which is made when it is not there."""

    is_local = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._chunks = root / "chunks"
        self._aside = root / "aside"
        self._marker = root / "store.json"
        with self._translated("open"):
            self._chunks.mkdir(parents=True, exist_ok=True)
            self._aside.mkdir(exist_ok=True)
        self._committer = Committer(self._chunks, lambda error: self._unavailable("write to", error))

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def path(self, key: str) -> Path:
        """Where a chunk lies or would lie. For reading only: the file is the store's."""
        return self._chunks / key[:2] / key[2:4] / key

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        self.put_soon(key, data, digested=digested).result()

    def put_soon(self, key: str, data: Buffer, *, digested: bool = False) -> Future[None]:
        if not digested:
            check_digest(key, data)
        view = memoryview(data)
        final = self.path(key)
        if _size(final) == view.nbytes:
            return done()
        with self._translated("write to"):
            return self._committer.commit(self._write_aside(key, view), final)

    def _write_aside(self, key: str, data: memoryview) -> Path:
        aside = self._aside / f"{key}.{secrets.token_hex(6)}"
        try:
            with aside.open("xb", buffering=0) as file:
                write_all(file.fileno(), data)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        return aside

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with self._opened(key) as file:
            if length is None:
                length = max(0, os.fstat(file).st_size - start)
            return os.pread(file, length, start)

    def read_into(self, key: str, buffer: memoryview) -> None:
        with self._opened(key) as file:
            if os.fstat(file).st_size != buffer.nbytes or os.preadv(file, [buffer], 0) != buffer.nbytes:
                raise wrong_size(self.url, key, buffer.nbytes)

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        with self._translated("read from"):
            try:
                file = os.open(self.path(key), os.O_RDONLY)
            except FileNotFoundError:
                raise missing_chunk(self.url, key) from None
            try:
                yield file
            finally:
                os.close(file)

    def missing(self, keys: Collection[str], sizes: Mapping[str, int] | None = None) -> set[str]:
        found = {key: _size(self.path(key)) for key in keys}
        return {key for key, size in found.items() if size is None or size != (sizes or {}).get(key, size)}

    def delete(self, key: str) -> None:
        path = self.path(key)
        with self._translated("delete from"):
            try:
                path.unlink()
            except FileNotFoundError:
                return
            sync_folder(path.parent)

    def list(self) -> Iterator[BlobInfo]:
        with self._translated("list"):
            for folder, _, names in os.walk(self._chunks):
                for name in names:
                    try:
                        status = Path(folder, name).stat()
                    except FileNotFoundError:
                        continue  # deleted meanwhile
                    yield BlobInfo(name, status.st_size, status.st_mtime)

    def claim(self, database_id: str) -> str:
        with self._translated("claim"):
            self._remove_leftovers()
            return claim_by_mark(self.url, self.mark, self._write_mark, database_id)

    def mark(self) -> Mark | None:
        with self._translated("claim"):
            try:
                return read_mark(self.url, self._marker.read_bytes())
            except FileNotFoundError:
                return None

    def _write_mark(self, mark: Mark) -> None:
        aside = self._aside / f"store.{secrets.token_hex(6)}"
        with aside.open("xb") as file:
            file.write(mark.to_json())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, self._marker)  # unlike rename, this never replaces that of one who was faster
        except FileExistsError:
            pass
        finally:
            aside.unlink()
        sync_folder(self.root)

    def _remove_leftovers(self) -> None:
        for path in self._aside.iterdir():
            try:
                if path.stat().st_mtime < time.time() - _LEFTOVER_AFTER:
                    path.unlink()
            except FileNotFoundError:
                continue  # another process removes it too

    def close(self) -> None:
        self._committer.close()

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except PodiumError:
            raise
        except OSError as error:
            raise self._unavailable(action, error) from error

    def _unavailable(self, action: str, error: OSError) -> PodiumError:
        if error.errno in _FULL:
            return StoreFull(
                f"The store {self.url} has no room left ({error.strerror}).",
                remedy="Make room on that disk, or set PODIUM_BLOBS to another; what was sent is kept.",
            )
        return StoreUnavailable(
            f"podium cannot {action} the store {self.url}: {error.strerror}",
            remedy="Check that the folder of PODIUM_BLOBS is there and yours to write.",
        )


def write_all(file: int, data: memoryview, offset: int | None = None) -> None:
    """Write all of ``data``, at ``offset`` or where the file is."""
    done = 0
    while done < data.nbytes:
        piece = data[done : done + _PIECE]
        done += os.write(file, piece) if offset is None else os.pwrite(file, piece, offset + done)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
