"""Files that engines read: each content in a folder named by its digest, whole or absent, never changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from registry.deployments import Loaded
from registry.errors import ContentDamaged
from registry.protocol import Registry

__all__ = ["Staging", "StoreStaging"]


class Staging(Protocol):
    """Where a deployment's contents lie on this machine."""

    def staged(self) -> frozenset[str]:
        """Digests whose files are there."""

    def path(self, digest: str) -> Path:
        """The immutable folder of a digest, there or not."""

    def stage(self, version: Loaded) -> None:
        """Bring a version's files here, verified. Raises `Unavailable`, `NotFound`."""

    def unstage(self, digest: str) -> None:
        """Remove the files of a digest that no process reads any more."""


class StoreStaging:
    """Contents from the registry's store, under one folder."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self._folder = folder
        self._registry = registry

    def staged(self) -> frozenset[str]:
        if not self._folder.is_dir():
            return frozenset()
        # The registry renames a folder to its name when it is whole, so one that is there is complete.
        return frozenset(f"sha256:{entry.name}" for entry in self._folder.iterdir() if len(entry.name) == 64)

    def path(self, digest: str) -> Path:
        return self._folder / digest.removeprefix("sha256:")

    def stage(self, version: Loaded) -> None:
        if version.digest in self.staged():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        pulled = self._registry.catalog.pull(version.ref, self.path(version.digest))
        if pulled.digest != version.digest:
            self.unstage(version.digest)
            raise ContentDamaged(
                f"{version.ref} has the digest {pulled.digest[:19]} instead of {version.digest[:19]}.",
                remedy="The version was replaced by hand; restore the database from its backup.",
            )

    def unstage(self, digest: str) -> None:
        # Aside first: a removal that is killed half way must not leave a folder that seems whole.
        aside = self.path(digest).with_suffix(".removed")
        try:
            self.path(digest).rename(aside)
        except FileNotFoundError:
            return
        shutil.rmtree(aside, ignore_errors=True)
