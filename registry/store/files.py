"""Files in and out of the blob store: what facets use of `registry.content`."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path

from registry.content.blobs import BlobStore, open_store
from registry.content.cache import ChunkCache
from registry.content.checked import checked
from registry.content.diff import Print, tensor_prints
from registry.content.download import materialise
from registry.content.kinds import Kind
from registry.content.manifest import FileEntry, Manifest
from registry.content.progress import Progress
from registry.content.reading import ChunkSource, check_chunk, read_headers, read_range
from registry.content.upload import upload
from registry.errors import ContentDamaged, NotFound
from registry.reports import read_report
from registry.settings import Settings
from registry.store import values
from registry.store.belonging import belong
from registry.store.session import Session
from registry.store.values import StoredFiles


class FileStore:
    """The blob store of a registry, opened when it is first needed."""

    def __init__(self, settings: Settings, session: Session) -> None:
        self._settings = settings
        self._session = session
        self._lock = threading.Lock()
        self._opened: BlobStore | None = None

    @property
    def _store(self) -> BlobStore:
        with self._lock:
            if self._opened is None:
                store = open_store(self._settings.blobs_url)
                belong(self._session, store)
                self._opened = store
            return self._opened

    @property
    def blobs(self) -> BlobStore:
        """The store itself, for who sends or fetches chunks on somebody else's behalf."""
        return self._store

    @cached_property
    def _cache(self) -> ChunkCache | None:
        """A folder on this machine is its own cache."""
        if self._store.is_local:
            return None
        return ChunkCache(self._settings.cache_folder, self._settings.cache_bytes)

    def upload(self, path: Path, kind: str, *, progress: Progress | None = None) -> StoredFiles:
        """Check files against their kind and bring their chunks into the store.

        Raises:
            InvalidContent: they are not what the kind requires, or change meanwhile.
        """
        found, report = checked(path, kind)
        done = upload(found, self._store, progress=progress)
        return StoredFiles(kind, done.manifest, found.notices, report, done.bytes_sent)

    def manifest(self, digest: str) -> Manifest:
        with self._session.reading() as reader:
            return values.manifest_of(reader, digest)

    def stored(self, kind: str, digest: str) -> StoredFiles:
        """Files that were uploaded and recorded earlier, with what a report among them says."""
        manifest = self.manifest(digest)
        report = None
        if kind == Kind.REPORT:
            report = read_report(lambda name: self.read(digest, name) if manifest.get(name) else None)
        return StoredFiles(kind, manifest, (), report)

    def materialise(self, digest: str, destination: Path, *, progress: Progress | None = None) -> None:
        """Write the files of a content into a new folder, whole or not at all."""
        materialise(self.manifest(digest), destination, self._store, cache=self._cache, progress=progress)

    def read(self, digest: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        entry = self.manifest(digest).get(path)
        if entry is None:
            raise NotFound(f"The content {digest[:19]}... has no file '{path[:80]}'.")
        return read_range(entry, ChunkSource(self._store, self._cache), start, length)

    def read_entry(self, entry: FileEntry | None) -> bytes | None:
        """A whole file whose chunks are in the store, of a content that may not be recorded yet."""
        return None if entry is None else read_range(entry, ChunkSource(self._store, self._cache))

    def remove_damaged_chunks(self, digest: str) -> None:
        """Take those chunks of a content out of the store that do not have their digest.

        Wrong bytes under a key are worse than none: whoever has the right ones would not send them again.
        """
        for chunk in self.manifest(digest).chunks().values():
            buffer = memoryview(bytearray(chunk.size))
            try:
                self._store.read_into(chunk.key, buffer)
                check_chunk(chunk, buffer)
            except ContentDamaged:
                self._store.delete(chunk.key)

    def tensors(self, digest: str) -> dict[str, Print]:
        """What each tensor of a content is, by name; only headers and packed tensors are read."""
        manifest = self.manifest(digest)
        source = ChunkSource(self._store, self._cache)
        headers = read_headers(manifest, source)
        return tensor_prints(manifest, headers, lambda entry, at, size: read_range(entry, source, at, size))

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
