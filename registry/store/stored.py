"""`StoredRegistry`: the `Registry` protocol over a database and a blob store. Facets are wired here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from registry.database.engine import Database
from registry.database.schema import prepare
from registry.identity.roles import TeamRole
from registry.settings import Settings
from registry.store.answers import StoredAnswers
from registry.store.apps import StoredApps
from registry.store.catalog import StoredCatalog
from registry.store.checkpoints import StoredCheckpoints
from registry.store.client_keys import StoredClientKeys
from registry.store.counts import StoredCounts
from registry.store.deliveries import StoredDeliveries
from registry.store.deployments import StoredDeployments
from registry.store.evidence import StoredEvaluations
from registry.store.files import FileStore
from registry.store.identity import StoredIdentity
from registry.store.leases import StoredLeases
from registry.store.lineage import StoredLineage
from registry.store.measures import StoredMeasures
from registry.store.operations import StoredOperations
from registry.store.outbox import StoredEvents
from registry.store.promotions import StoredPromotions
from registry.store.received import ReceivedContent
from registry.store.runs import StoredRuns
from registry.store.session import Session, check_text
from registry.store.steps import StoredSteps
from registry.store.workers import StoredWorkers
from registry.values import Origin

_LONGEST_ACTOR = 300  # characters


class StoredRegistry:
    """The registry of whoever has the database."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        files: FileStore | None = None,
        role: TeamRole = TeamRole.ADMIN,
        pattern: str = "*",
    ) -> None:
        self._settings = settings
        self._session = session
        self._files = files or FileStore(settings, session)
        self._role = role
        self._pattern = pattern

    @classmethod
    def open(
        cls, settings: Settings, *, actor: str | None = None, database: Database | None = None
    ) -> StoredRegistry:
        """Connect, and bring the schema up to date."""
        database = database or Database(settings.database_url)
        origin = Origin(check_text(actor or settings.actor_name, "The actor's name", longest=_LONGEST_ACTOR))
        return cls(settings, Session(database, prepare(database), origin))

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def database_id(self) -> str:
        return self._session.database_id

    @property
    def origin(self) -> Origin:
        return self._session.origin

    @cached_property
    def catalog(self) -> StoredCatalog:
        window = timedelta(days=self._settings.rollback_window)
        return StoredCatalog(self._session, self._files, window)

    @cached_property
    def promotions(self) -> StoredPromotions:
        return StoredPromotions(self._session)

    @cached_property
    def evaluations(self) -> StoredEvaluations:
        return StoredEvaluations(self._session)

    @cached_property
    def lineage(self) -> StoredLineage:
        return StoredLineage(self._session)

    @cached_property
    def events(self) -> StoredEvents:
        return StoredEvents(self._session)

    @cached_property
    def leases(self) -> StoredLeases:
        return StoredLeases(self._session)

    @cached_property
    def deliveries(self) -> StoredDeliveries:
        return StoredDeliveries(self._session)

    @cached_property
    def deployments(self) -> StoredDeployments:
        return StoredDeployments(self._session)

    @cached_property
    def operations(self) -> StoredOperations:
        return StoredOperations(self._session)

    @cached_property
    def client_keys(self) -> StoredClientKeys:
        return StoredClientKeys(self._session)

    @cached_property
    def apps(self) -> StoredApps:
        return StoredApps(self._session)

    @cached_property
    def runs(self) -> StoredRuns:
        return StoredRuns(self._session, self._files)

    @cached_property
    def checkpoints(self) -> StoredCheckpoints:
        return StoredCheckpoints(self._session, self._files)

    @cached_property
    def measures(self) -> StoredMeasures:
        return StoredMeasures(self._session)

    @cached_property
    def steps(self) -> StoredSteps:
        return StoredSteps(self._session, self._files)

    @cached_property
    def workers(self) -> StoredWorkers:
        return StoredWorkers(self._session)

    @cached_property
    def identity(self) -> StoredIdentity:
        return StoredIdentity(self._session, self._role, self._pattern)

    @cached_property
    def answers(self) -> StoredAnswers:
        """Beside the protocol: what the HTTP server keeps."""
        return StoredAnswers(self._session)

    @cached_property
    def counts(self) -> StoredCounts:
        """Beside the protocol: what the HTTP server's metrics say."""
        return StoredCounts(self._session)

    @cached_property
    def received(self) -> ReceivedContent:
        """Beside the protocol: content that clients of the HTTP server have sent."""
        return ReceivedContent(self._session, self._files)

    @property
    def files(self) -> FileStore:
        """Beside the protocol: the blob store, for what the HTTP server moves."""
        return self._files

    def acting(self, origin: Origin) -> StoredRegistry:
        session = self._session.acting(origin)
        return StoredRegistry(self._settings, session, self._files, self._role, self._pattern)

    def acting_with(self, origin: Origin, role: TeamRole, pattern: str) -> StoredRegistry:
        """Beside the protocol: `acting` for who has a token of that role and pattern."""
        return StoredRegistry(self._settings, self._session.acting(origin), self._files, role, pattern)

    def sealing(self, seal: Callable[[Any], None]) -> StoredRegistry:
        """Beside the protocol: ``seal`` is called in each promotion's own transaction, with what it made.

        So what the HTTP server keeps of a promotion is true with it, and judging is outside both.
        """
        session = replace(self._session, seal=seal)
        return StoredRegistry(self._settings, session, self._files, self._role, self._pattern)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._session.writing():
            yield

    def close(self) -> None:
        self._files.close()
        self._session.database.close()
