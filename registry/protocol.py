"""The `Registry` protocol: all that other rooms may ask of the registry.

It is cut by use case into facets, so that no class grows to know everything. `registry.connect()` returns an
implementation over the database; another over HTTP may take its place without its callers noticing. All calls
are synchronous and thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from registry.content.manifest import Manifest
    from registry.content.progress import Progress
    from registry.settings import Settings

from registry.values import (
    Alias,
    AppChange,
    AppObject,
    Artifact,
    Evaluation,
    Event,
    Lease,
    LineageGraph,
    Origin,
    Parent,
    Promotion,
    Published,
    StreamPosition,
    Verdict,
    Version,
)


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

        The same content under the same artifact gives the version that is there. ``kind`` may be left out where the artifact exists.
        """

    def resolve(self, reference: str) -> Version:
        """The version that a reference names now; a bare name is the newest version."""

    def manifest(self, digest: str) -> Manifest:
        """The files of a content digest, with their chunks."""

    def pull(self, reference: str, destination: Path, *, progress: Progress | None = None) -> Version:
        """Write a version's files into the folder ``destination``, whole or not at all, digests verified."""

    def read(self, digest: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of one file of a content digest (for headers and small files; not verified when a part)."""

    def artifacts(self, pattern: str = "*", *, limit: int = 50, after: str = "") -> list[Artifact]:
        """Artifacts whose name matches a glob, by name, after the name ``after``."""

    def versions(self, name: str, *, limit: int = 50, before: int | None = None) -> list[Version]:
        """Versions of an artifact, newest first, numbered below ``before``."""

    def tag(self, reference: str, tags: Mapping[str, str | None]) -> Version:
        """Set tags; None removes one."""

    def delete(self, reference: str) -> Version:
        """Remove a version that nothing needs.

        Raises:
            VersionInUse: an alias holds it, held it within its rollback window, or a deployment uses it.
        """


class Promotions(Protocol):
    """Aliases and how they move."""

    def promote(
        self,
        reference: str,
        alias: str,
        *,
        expect: int | EllipsisType | None = ...,
        expect_generation: int | None = None,
        reason: str = "",
    ) -> Promotion:
        """Move ``alias`` of the artifact to the version, behind its gates, in one transaction.

        ``expect`` is the version number that the alias must hold now, None for no such alias yet.

        Raises:
            GateFailed, AliasMoved, AliasHeld, VersionNotFound, StaleAuthority.
        """

    def judge(self, reference: str, alias: str) -> list[Verdict]:
        """What the alias's gates say of a version now, without moving anything."""

    def rollback(self, name: str, alias: str, *, to: int | None = None, reason: str = "") -> Promotion:
        """Go back to the last earlier version that was live (or to ``to``) and hold the alias."""

    def revert(self, name: str, alias: str, *, failed_generation: int, reason: str) -> Promotion | None:
        """Put the alias back because ``failed_generation`` could not be served; None if it has moved on."""

    def release(self, name: str, alias: str) -> Alias:
        """End a hold, so that triggers may promote again."""

    def get(self, name: str, alias: str) -> Alias:
        """Where the alias is. Raises `AliasNotFound`."""

    def aliases(self, name: str) -> list[Alias]: ...

    def history(self, name: str, alias: str | None = None, *, limit: int = 100) -> list[Promotion]:
        """Newest first."""

    def promotion(self, name: str, alias: str, generation: int) -> Promotion: ...


class Evaluations(Protocol):
    """Scores of published reports."""

    def of(self, digest: str, *, dataset_digest: str | None = None) -> list[Evaluation]:
        """Evaluations of a content digest, newest first."""


class Lineage(Protocol):
    def walk(self, reference: str, *, up: bool = True, depth: int = 50) -> LineageGraph:
        """What a version was made from (``up``), or what was made from it."""


class Events(Protocol):
    """The outbox: events in the order in which they became true."""

    def after(self, sequence: int, *, limit: int = 100) -> list[Event]: ...

    def get(self, event_id: str) -> Event: ...

    def tail(self, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest of them first."""

    def position(self) -> StreamPosition: ...

    def mark_relayed(self, sequence: int, event_id: str, *, incarnation: int) -> None:
        """Record that all events up to ``sequence`` are in the stream.

        It is called after the broker's acknowledgement, by a registry acting with the relay's authority.
        """

    def begin_incarnation(self, *, relayed: int = 0, relayed_id: str | None = None) -> StreamPosition:
        """Start a new stream, because the old one was lost or cut short; it will be filled from ``relayed``."""

    def wait(self, sequence: int, timeout: float) -> bool:
        """Block until there may be an event after ``sequence`` (True), or ``timeout`` seconds (False)."""


class Leases(Protocol):
    """Exclusive work, by lease and epoch."""

    def acquire(self, name: str, holder: str, *, seen: Lease | None = None) -> Lease | None:
        """Take a free lease; or, with ``seen``, take it over from a holder who has not beaten since.

        None: somebody holds it (or has beaten since ``seen``).
        """

    def get(self, name: str) -> Lease | None:
        """Who holds it now; None if it is free."""

    def beat(self, leases: Collection[Lease]) -> list[Lease]:
        """Say that the holder lives. Those still held come back with a higher beat; lost ones do not."""

    def release(self, lease: Lease) -> None:
        """Free it, if it is still ours."""

    def held(self, prefix: str) -> list[Lease]:
        """All leases that are held under a prefix such as ``run/``."""


class Apps(Protocol):
    """Declared objects."""

    def plan(self, app: str, objects: Sequence[AppObject]) -> list[AppChange]:
        """What applying would add, change, remove and keep."""

    def apply(self, app: str, objects: Sequence[AppObject], *, plan: Sequence[AppChange]) -> None:
        """Make the app's declared objects exactly these, in one transaction, if ``plan`` is still true."""

    def objects(self, kind: str | None = None, *, app: str | None = None) -> list[AppObject]: ...


class Registry(Protocol):
    """One registry. Facets share its origin: on whose behalf, under which lease."""

    @property
    def settings(self) -> Settings: ...
    @property
    def database_id(self) -> str: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def promotions(self) -> Promotions: ...
    @property
    def evaluations(self) -> Evaluations: ...
    @property
    def lineage(self) -> Lineage: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def apps(self) -> Apps: ...

    def acting(self, origin: Origin) -> Registry:
        """The same registry on another's behalf; every write then checks the origin's authority."""

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside the block, by this thread, become true together or not at all."""

    def close(self) -> None: ...
