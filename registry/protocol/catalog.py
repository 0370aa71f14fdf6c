"""Artifacts and their versions, as the `Registry` protocol gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from registry.values import Artifact, Parent, Published, Stored, Version

if TYPE_CHECKING:
    from registry.content.diff import ContentDiff
    from registry.content.manifest import Manifest
    from registry.content.progress import Progress


class Catalog(Protocol):
    """Artifacts and their versions."""

    def publish(
        self,
        name: str,
        path: Path,
        kind: str | None = None,
        *,
        parents: Sequence[Parent] = (),
        metadata: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Published:
        """Store a folder or file and make it the next version of ``name``.

        The same content under the same artifact gives the version that is there. ``kind`` may be left out
        where the artifact exists.
        """

    def store(self, path: Path, kind: str, *, progress: Progress | None = None) -> Stored:
        """Store a folder or file and do not make it visible: a run will refer to it when it finishes."""

    def name(self, name: str, value: str) -> Published:
        """Make a value that is there a version of the artifact ``name``."""

    def resolve(self, reference: str) -> Version:
        """The version that a reference names now; a bare name is the newest version."""

    def manifest(self, digest: str) -> Manifest:
        """The files of a content digest, with their chunks."""

    def materialise(self, digest: str, destination: Path, *, progress: Progress | None = None) -> None:
        """`pull` for a content digest."""

    def pull(self, reference: str, destination: Path, *, progress: Progress | None = None) -> Version:
        """Write a version's files into the folder ``destination``, whole or not at all, digests verified."""

    def read(self, digest: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of one file of a content digest (for headers and small files; not verified when a part)."""

    def diff(self, before: str, after: str) -> ContentDiff:
        """What changed between two versions, down to tensors."""

    def artifacts(self, pattern: str = "*", *, limit: int = 50, after: str = "") -> list[Artifact]:
        """Artifacts whose name matches a glob, by name, after the name ``after``."""

    def versions(self, name: str, *, limit: int = 50, before: int | None = None) -> list[Version]:
        """Versions of an artifact, newest first, numbered below ``before``."""

    def tag(self, reference: str, tags: Mapping[str, str | None]) -> Version:
        """Set tags; None removes one."""

    def delete(self, reference: str) -> Version:
        """Remove a version that nothing needs.

        Raises:
            VersionInUse: an alias holds it, held it within its rollback window, a deployment uses it, or a
                gate judges on it.
        """
