"""The database of a world: SQLite in memory, shared by all processes, over connections that can fail."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine.url import make_url

from registry.content.blobs import BlobStore
from registry.database.engine import Database, Transaction
from registry.errors import DatabaseUnavailable
from registry.protocol import Registry
from registry.settings import Settings
from registry.store.files import FileStore
from registry.store.outbox import StoredEvents
from registry.store.session import Session
from registry.store.stored import StoredRegistry
from registry.values import Origin
from tests.simulation.process import Process

if TYPE_CHECKING:
    pass


_LOOK_SECONDS = 0.1
_URL = make_url("sqlite:///:memory:")


class SharedDatabase(Database):
    """One process's way to the world's database."""

    def __init__(self, process: Process) -> None:
        # Without the base's own start: its pool costs more than a whole schedule may.
        self.url, self.dialect, self.now = _URL, "sqlite", process.wall_clock
        self._open = threading.local()
        self._writing = threading.Lock()
        self._process = process
        self._world = process.world

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self._before()
        with super().transaction() as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        self._before()
        with super().reading() as reader:
            yield reader

    def _before(self) -> None:
        if getattr(self._open, "transaction", None) is None:
            self._process.between_transactions()
            if self._world.happens(self._world.faults.database_away):
                raise DatabaseUnavailable("The database did not answer: simulated.")

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        yield self._world.connection

    def _end(self, connection: Any, verb: str) -> None:
        super()._end(connection, verb)
        if verb == "COMMIT":
            for look in self._world.on_commit:
                look()
            self._process.check()
            if self._world.happens(self._world.faults.commit_unknown):
                raise DatabaseUnavailable("The connection was lost while the transaction was committed.")

    def _end_quietly(self, connection: Any) -> None:
        if connection.in_transaction:  # not when only the answer to a commit was lost
            super()._end(connection, "ROLLBACK")


class SharedEvents(StoredEvents):
    """The outbox, at which one waits in virtual time."""

    def __init__(self, session: Session, process: Process) -> None:
        super().__init__(session)
        self._process = process

    def wait(self, sequence: int, timeout: float) -> bool:
        deadline = self._process.world.now + timeout
        while not (is_news := self._newest() > sequence) and self._process.world.now < deadline:
            self._process.sleep(min(timeout, self._process.world.random.uniform(0, _LOOK_SECONDS)))
        return is_news


class SharedFiles(FileStore):
    """Files in the world's blob store."""

    def __init__(self, settings: Settings, session: Session, store: BlobStore) -> None:
        super().__init__(settings, session)
        self._opened = store


class SharedRegistry(StoredRegistry):
    """The real registry in one process of a world."""

    def __init__(self, process: Process, settings: Settings, session: Session, files: FileStore) -> None:
        super().__init__(settings, session, files)
        self._process = process
        self.events = SharedEvents(session, process)

    @classmethod
    def of(
        cls, process: Process, store: BlobStore, actor: str, settings: Settings | None = None
    ) -> SharedRegistry:
        world = process.world
        settings = settings or world.settings
        session = Session(SharedDatabase(process), world.database_id, Origin(actor))
        return cls(process, settings, session, SharedFiles(settings, session, store))

    def acting(self, origin: Origin) -> Registry:
        assert self._files is not None
        return SharedRegistry(self._process, self._settings, self._session.acting(origin), self._files)


def new_connection(image: bytes | None = None) -> sqlite3.Connection:
    """A database in memory with the content of ``image``."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if image is not None:
        connection.deserialize(image)
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def image_of(connection: sqlite3.Connection) -> bytes:
    """A backup of a database, as `new_connection` takes it."""
    return connection.serialize()
