"""A manifest: the files that a version consists of, and in which chunks their bytes are stored.

The digest of content covers what the files *are*, not how they were cut. It is the sha256 of this text in
UTF-8, with one line a file in the order of the paths' UTF-8 bytes, each ended by a newline:

    podium-content-v1
    <sha256 of the file, 64 hex digits> <size in decimal> <path>

Paths have no control characters, so no two lists of files give one text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from registry.content.paths import check_collisions, check_path
from registry.errors import ContentDamaged, InvalidContent

_HEADING = "podium-content-v1\n"
_SCHEMA = 1
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A stored run of bytes: its key is their sha256 in hex, its size is in bytes and never 0."""

    key: str
    size: int

    def __post_init__(self) -> None:
        _check_key(self.key)
        if self.size <= 0:
            raise InvalidContent(f"Chunk {self.key} has the size {self.size}.")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file: its bytes are those of its chunks, one after the other. An empty file has no chunks."""

    path: str
    size: int
    sha256: str
    chunks: tuple[ChunkRef, ...]

    def __post_init__(self) -> None:
        check_path(self.path)
        _check_key(self.sha256)
        if sum(chunk.size for chunk in self.chunks) != self.size:
            raise InvalidContent(f"The chunks of {self.path} do not add up to its {self.size} bytes.")
        # So it is enough to check one of the two when a file is a single chunk.
        if len(self.chunks) == 1 and self.chunks[0].key != self.sha256:
            raise InvalidContent(f"{self.path} and its only chunk have different digests.")

    def spans(self) -> Iterable[tuple[int, ChunkRef]]:
        """Each chunk with the offset in the file at which it begins."""
        offset = 0
        for chunk in self.chunks:
            yield offset, chunk
            offset += chunk.size


@dataclass(frozen=True)
class Manifest:
    """Files in the order of their paths' UTF-8 bytes, whatever the order they were given in."""

    files: tuple[FileEntry, ...]
    _by_path: Mapping[str, FileEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.files, key=lambda entry: entry.path.encode()))
        check_collisions(entry.path for entry in ordered)
        object.__setattr__(self, "files", ordered)
        object.__setattr__(self, "_by_path", {entry.path: entry for entry in ordered})

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and 64 hex digits: the identity of the content (see the head of this file)."""
        lines = (f"{entry.sha256} {entry.size} {entry.path}\n" for entry in self.files)
        return "sha256:" + hashlib.sha256((_HEADING + "".join(lines)).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def get(self, path: str) -> FileEntry | None:
        return self._by_path.get(path)

    def chunks(self) -> dict[str, ChunkRef]:
        """Every chunk that the content needs, once, by key."""
        return {chunk.key: chunk for entry in self.files for chunk in entry.chunks}

    def to_json(self) -> str:
        """Compact JSON; equal manifests give equal text."""
        files = [
            {
                "path": entry.path,
                "size": entry.size,
                "sha256": entry.sha256,
                "chunks": [[chunk.key, chunk.size] for chunk in entry.chunks],
            }
            for entry in self.files
        ]
        return json.dumps({"schema": _SCHEMA, "files": files}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Read what `to_json` wrote.

        Raises:
            ContentDamaged: it is not a manifest, or of a schema that this version of podium does not know.
        """
        try:
            document = json.loads(text)
            if document["schema"] != _SCHEMA:
                raise ContentDamaged(
                    f"A manifest has schema {document['schema']}, and this podium reads schema {_SCHEMA}.",
                    remedy="Use the version of podium that wrote it, or a newer one.",
                )
            return cls(tuple(_entry(each) for each in document["files"]))
        except (ValueError, TypeError, KeyError, RecursionError, InvalidContent) as error:
            raise ContentDamaged(
                f"A stored manifest cannot be read: {error}", remedy="Restore the database from a backup."
            ) from error


def _entry(document: dict[str, Any]) -> FileEntry:
    chunks = tuple(ChunkRef(_text(key), _count(size)) for key, size in document["chunks"])
    return FileEntry(_text(document["path"]), _count(document["size"]), _text(document["sha256"]), chunks)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is not a count of bytes")
    return value


def _check_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        raise InvalidContent(f"{key[:80]!r} is not a sha256 in hex.")
