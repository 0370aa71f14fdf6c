"""What differs between two versions, down to tensors. Pure: bytes are compared by digests alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from registry.content.manifest import ChunkRef, FileEntry, Manifest
from registry.content.safetensors import Header, Tensor


class Change(StrEnum):
    """How something of that name differs between the old and the new content."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"  # other bytes
    RESHAPED = "reshaped"  # other shape or dtype, so other bytes as well


@dataclass(frozen=True, slots=True)
class Print:
    """What a tensor is: equal prints mean equal tensors."""

    dtype: str
    shape: tuple[int, ...]
    size: int  # bytes
    digests: tuple[str, ...]  # of its bytes, piece by piece as they were cut


@dataclass(frozen=True, slots=True)
class FileChange:
    path: str
    change: Change
    old_size: int | None
    new_size: int | None


@dataclass(frozen=True, slots=True)
class TensorChange:
    name: str
    change: Change
    old: Print | None
    new: Print | None


@dataclass(frozen=True, slots=True)
class ContentDiff:
    """Files and tensors that differ, by name; what is equal is only counted."""

    files: tuple[FileChange, ...]
    tensors: tuple[TensorChange, ...]
    tensors_same: int
    bytes_shared: int  # of the new content that lie in chunks which the old one has too
    bytes_new: int  # the rest of the new content

    @property
    def is_empty(self) -> bool:
        return not self.files


def diff(
    old: Manifest, new: Manifest, old_tensors: Mapping[str, Print], new_tensors: Mapping[str, Print]
) -> ContentDiff:
    """Compare two manifests and the prints of all their tensors (see `tensor_prints`)."""
    had = old.chunks()
    shared = sum(chunk.size for entry in new.files for chunk in entry.chunks if chunk.key in had)
    tensors = [
        _tensor_change(name, old_tensors.get(name), new_tensors.get(name))
        for name in sorted(old_tensors.keys() | new_tensors.keys())
    ]
    changed = tuple(each for each in tensors if each is not None)
    return ContentDiff(
        _file_changes(old, new), changed, len(tensors) - len(changed), shared, new.size - shared
    )


def _file_changes(old: Manifest, new: Manifest) -> tuple[FileChange, ...]:
    paths = sorted({entry.path for entry in (*old.files, *new.files)}, key=str.encode)
    changes = (_file_change(path, old.get(path), new.get(path)) for path in paths)
    return tuple(change for change in changes if change is not None)


def _file_change(path: str, old: FileEntry | None, new: FileEntry | None) -> FileChange | None:
    if old is not None and new is not None and old.sha256 == new.sha256:
        return None
    change = Change.ADDED if old is None else Change.REMOVED if new is None else Change.CHANGED
    return FileChange(path, change, old.size if old else None, new.size if new else None)


def _tensor_change(name: str, old: Print | None, new: Print | None) -> TensorChange | None:
    if old == new:
        return None
    if old is None:
        return TensorChange(name, Change.ADDED, old, new)
    if new is None:
        return TensorChange(name, Change.REMOVED, old, new)
    same_form = (old.dtype, old.shape) == (new.dtype, new.shape)
    return TensorChange(name, Change.CHANGED if same_form else Change.RESHAPED, old, new)


def tensor_prints(
    manifest: Manifest, headers: Mapping[str, Header], read: Callable[[FileEntry, int, int], bytes]
) -> dict[str, Print]:
    """The print of each tensor, by name, over all files that have a header.

    A tensor that lies in chunks of its own is known by their keys; only those that were packed with others
    (less than 64 KiB each) are read, with ``read(file, start, length)``. Where two files have a tensor of one
    name, as shards never do, its name is prefixed by the file's: ``file#name``.
    """
    prints: dict[str, Print] = {}
    for path, header in sorted(headers.items()):
        entry = manifest.get(path)
        assert entry is not None
        spans = dict(entry.spans())
        for name, tensor in header.tensors.items():
            digests = _own_chunks(tensor, spans)
            if digests is None:
                digests = (hashlib.sha256(read(entry, tensor.begin, tensor.size)).hexdigest(),)
            key = f"{path}#{name}" if name in prints else name
            prints[key] = Print(tensor.dtype, tensor.shape, tensor.size, digests)
    return prints


def _own_chunks(tensor: Tensor, spans: Mapping[int, ChunkRef]) -> tuple[str, ...] | None:
    """Keys of the chunks that hold exactly this tensor, or None when it shares a chunk with others."""
    keys = []
    at = tensor.begin
    while at < tensor.end and at in spans and at + spans[at].size <= tensor.end:
        keys.append(spans[at].key)
        at += spans[at].size
    return tuple(keys) if at == tensor.end else None
