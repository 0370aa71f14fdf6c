"""Where the bytes of chunks come from: the cache if it has them, else the store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from registry.content.blobs import BlobStore
from registry.content.cache import ChunkCache
from registry.content.diff import ContentDiff, Print, diff, tensor_prints
from registry.content.manifest import ChunkRef, FileEntry, Manifest
from registry.content.safetensors import Header, read_header_through
from registry.errors import ContentDamaged


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """A store and the cache before it. A store on this machine needs none."""

    store: BlobStore
    cache: ChunkCache | None = None

    def read_into(self, chunk: ChunkRef, buffer: memoryview) -> None:
        """Fill ``buffer`` with a whole chunk, unverified.

        The caller verifies the file that comes of it, and calls `drop_damaged` when that has another digest.
        """
        if self._cache is not None and self._cache.read_into(chunk.key, buffer):
            return
        self.store.read_into(chunk.key, buffer)
        if self._cache is not None:
            self._cache.add(chunk.key, buffer)

    def read(self, chunk: ChunkRef, start: int, length: int) -> bytes:
        """A part of a chunk, unverified; it is not kept in the cache."""
        cached = None if self._cache is None else self._cache.read(chunk.key, start, length)
        return self.store.read(chunk.key, start, length) if cached is None else cached

    def drop_damaged(self, chunk: ChunkRef, buffer: memoryview) -> bool:
        """See to a chunk of a damaged file: forget a damaged copy in the cache, and check the store's.

        True: the chunk was damaged and there is a sound copy in the store.

        Raises:
            ContentDamaged: the store's copy is damaged.
        """
        cached = self._cache is not None and self._cache.read_into(chunk.key, buffer)
        if cached and hashlib.sha256(buffer).hexdigest() == chunk.key:
            return False
        if self._cache is not None:
            self._cache.drop(chunk.key)
        self.store.read_into(chunk.key, buffer)
        check_chunk(chunk, buffer)
        return cached

    @property
    def _cache(self) -> ChunkCache | None:
        return None if self.store.is_local else self.cache


def check_chunk(chunk: ChunkRef, data: memoryview) -> None:
    """Raise `ContentDamaged` unless the bytes have the chunk's digest."""
    if hashlib.sha256(data).hexdigest() != chunk.key:
        raise ContentDamaged(
            f"Chunk {chunk.key} in the store is damaged.",
            remedy="Restore it from a copy of the store, or delete it there and push those files again.",
            chunk=chunk.key,
        )


def read_range(entry: FileEntry, source: ChunkSource, start: int = 0, length: int | None = None) -> bytes:
    """Bytes of a file of a version, fewer where it ends.

    A whole file is verified; a part is not, since only whole chunks have digests.

    Raises:
        ContentDamaged: a chunk is missing, or the whole file does not have its digest.
    """
    end = entry.size if length is None else min(entry.size, start + length)
    pieces = []
    for offset, chunk in entry.spans():
        begin, stop = max(start, offset), min(end, offset + chunk.size)
        if begin < stop:
            pieces.append(source.read(chunk, begin - offset, stop - begin))
    data = b"".join(pieces)
    if start == 0 and end == entry.size and hashlib.sha256(data).hexdigest() != entry.sha256:
        raise damaged_file(entry)
    return data


def damaged_file(entry: FileEntry) -> ContentDamaged:
    return ContentDamaged(
        f"{entry.path} as it is stored does not have its digest.",
        remedy="Restore the store from a copy, or delete the version and push its files again.",
        path=entry.path,
    )


def read_headers(manifest: Manifest, source: ChunkSource) -> dict[str, Header]:
    """The header of each safetensors file, by path; only headers are fetched.

    Raises:
        InvalidContent: a header is not sound.
    """

    def header(entry: FileEntry) -> Header:
        return read_header_through(
            lambda start, length: read_range(entry, source, start, length), entry.size, name=entry.path
        )

    return {entry.path: header(entry) for entry in manifest.files if entry.path.endswith(".safetensors")}


def compare(old: Manifest, new: Manifest, source: ChunkSource) -> ContentDiff:
    """What differs between two versions' files and tensors; headers and small tensors are fetched for it."""
    return diff(old, new, _prints(old, source), _prints(new, source))


def _prints(manifest: Manifest, source: ChunkSource) -> dict[str, Print]:
    headers = read_headers(manifest, source)
    return tensor_prints(manifest, headers, lambda entry, start, size: read_range(entry, source, start, size))
