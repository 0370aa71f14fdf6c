"""What a recipe was given, by digest: so that a report says of which bytes it speaks."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from registry.artifacts import Artifact
from registry.content.kinds import Kind, validate
from registry.content.manifest import ChunkRef, FileEntry, Manifest
from registry.content.scan import ScannedFile, scan


def identity(content: Artifact | str | os.PathLike[str], kind: str) -> dict[str, str | None]:
    """Digest and reference of content. A plain folder has the digest that publishing it would give."""
    if isinstance(content, Artifact) and content.digest:
        return {"digest": content.digest, "ref": content.ref}
    files = validate(Kind(kind), scan(Path(content))).files
    return {"digest": Manifest(tuple(map(_entry, files))).digest, "ref": None}


def named(content: Artifact | str | os.PathLike[str]) -> str:
    """What a person calls it: its reference, or the name of its folder."""
    return (isinstance(content, Artifact) and content.ref) or Path(content).name


def _entry(file: ScannedFile) -> FileEntry:
    with file.source.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    # A content's digest does not depend on how it is cut, so one chunk a file will do.
    return FileEntry(file.path, file.size, sha256, (ChunkRef(sha256, file.size),) if file.size else ())
