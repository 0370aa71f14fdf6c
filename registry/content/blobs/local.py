"""Chunks in a folder.

ROOT/chunks/ab/cd/abcd...   a chunk, complete and durable from the moment it has this name
ROOT/aside/                 chunks being written; what a crash leaves here is removed a day later
ROOT/store.json             which database the store belongs to
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from registry.content.blobs.store import (
    BlobInfo,
    Buffer,
    check_digest,
    check_owner,
    missing_chunk,
    wrong_size,
)
from registry.errors import PodiumError, StoreFull, StoreUnavailable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LEFTOVER_AFTER = 24 * 3600  # seconds; no chunk takes that long to write


class LocalStore:
    """A `BlobStore` in a folder, which is made when it is not there."""

    is_local = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._chunks = root / "chunks"
        self._aside = root / "aside"
        with self._translated("open"):
            self._chunks.mkdir(parents=True, exist_ok=True)
            self._aside.mkdir(exist_ok=True)

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def path(self, key: str) -> Path:
        """Where a chunk lies or would lie. For reading only: the file is the store's."""
        return self._chunks / key[:2] / key[2:4] / key

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        if not digested:
            check_digest(key, data)
        view = memoryview(data)
        final = self.path(key)
        with self._translated("write to"):
            if _size(final) != view.nbytes:
                self._make_folders(final.parent)
                self._write_durably(final, view)

    def _write_durably(self, final: Path, data: memoryview) -> None:
        aside = self._aside / f"{final.name}.{secrets.token_hex(6)}"
        try:
            with aside.open("xb", buffering=0) as file:
                write_all(file.fileno(), data)
                os.fsync(file.fileno())
            aside.rename(final)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(final.parent)  # else the name could be lost in a power cut

    def _make_folders(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)

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

    def missing(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if _size(self.path(key)) is None}

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

    def claim(self, database_id: str) -> None:
        marker = self.root / "store.json"
        with self._translated("claim"):
            self._remove_leftovers()
            if not marker.exists():
                self._write_marker(marker, database_id)
            owner = json.loads(marker.read_text())["database"]
        check_owner(self.url, owner, database_id)

    def _write_marker(self, marker: Path, database_id: str) -> None:
        aside = self._aside / f"store.{secrets.token_hex(6)}"
        with aside.open("x") as file:
            file.write(json.dumps({"schema": 1, "database": database_id}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, marker)  # unlike rename, this never replaces the marker of one who was faster
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
        """Nothing is held."""

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except PodiumError:
            raise
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(
                    f"the store {self.url} has no room left ({error.strerror})",
                    remedy="Make room on that disk, or set PODIUM_BLOBS to another; what was sent is kept.",
                ) from error
            raise StoreUnavailable(
                f"podium cannot {action} the store {self.url}: {error.strerror}",
                remedy="Check that the folder of PODIUM_BLOBS is there and yours to write.",
            ) from error


def write_all(file: int, data: memoryview, offset: int | None = None) -> None:
    """Write all of ``data`` (one write call takes at most 2 GiB), at ``offset`` or where the file is."""
    done = 0
    while done < data.nbytes:
        rest = data[done:]
        done += os.write(file, rest) if offset is None else os.pwrite(file, rest, offset + done)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
