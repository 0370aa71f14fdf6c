"""One database, SQLite or PostgreSQL, and its transactions."""

from __future__ import annotations

import select
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.engine.url import URL, make_url

from registry.database.filesystem import refuse_network_file_system
from registry.database.statements import Statement, sql
from registry.errors import DatabaseUnavailable, InvalidSetting, PodiumError

Row = tuple[Any, ...]
_CHECK_PAGES = sql("PRAGMA quick_check(1)")
_TURN_SECONDS = 20.0


class UniqueViolation(Exception):
    """A unique or primary key already has that value. Facets turn it into their own answer."""


class NoRow(LookupError):
    """A row that must be there is not. Over HTTP it is the client that named what is not there."""


class Transaction:
    """What is read and written together. Writes become true when the outermost block ends."""

    def __init__(self, connection: Any, dialect: str) -> None:
        self._cursor = connection.cursor()
        self._dialect = dialect
        self.outgoing_events: list[dict[str, Any]] = []
        self.before_commit: list[Callable[[], None]] = []
        self.after_commit: list[Callable[[], None]] = []
        self.after_rollback: list[Callable[[], None]] = []

    def execute(self, statement: Statement, **parameters: Any) -> int:
        """Run a statement; the number of rows it changed."""
        self._run(statement, parameters)
        return int(self._cursor.rowcount)

    def execute_many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each row of parameters."""
        if not rows:
            return
        with translated():
            if self._dialect == "sqlite":
                self._cursor.executemany(statement.sqlite, [_for_sqlite(row) for row in rows])
            else:
                self._cursor.executemany(statement.postgresql, rows)

    def all(self, statement: Statement, **parameters: Any) -> list[Row]:
        self._run(statement, parameters)
        with translated():
            return list(self._cursor.fetchall())

    def first(self, statement: Statement, **parameters: Any) -> Row | None:
        self._run(statement, parameters)
        with translated():
            row: Row | None = self._cursor.fetchone()
            if self._dialect == "sqlite":
                # An open cursor would keep a RETURNING statement from finishing.
                self._cursor.fetchall()
            return row

    def one(self, statement: Statement, **parameters: Any) -> Row:
        """The single row that must be there."""
        row = self.first(statement, **parameters)
        if row is None:
            raise NoRow(f"no row for: {statement.text}")
        return row

    def _run(self, statement: Statement, parameters: Mapping[str, Any]) -> None:
        with translated():
            if self._dialect == "sqlite":
                self._cursor.execute(statement.sqlite, _for_sqlite(parameters))
            else:
                self._cursor.execute(statement.postgresql, parameters)

    def close(self) -> None:
        self._cursor.close()


def _for_sqlite(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """SQLite has no time type: times are stored as ISO 8601 text in UTC, which sorts as they do."""
    return {k: to_text(v) if isinstance(v, datetime) else v for k, v in parameters.items()}


def to_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def to_time(stored: Any) -> datetime:
    """A time column's value as an aware `datetime`, from either database."""
    return stored if isinstance(stored, datetime) else datetime.fromisoformat(stored)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the drivers' errors into podium's, at the one seam where they cross."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise _meaning(error.orig or error) from error
    except sa.exc.SQLAlchemyError as error:
        raise _unavailable(error) from error
    except Exception as error:
        meaning = _meaning(error)
        if meaning is error:
            raise
        raise meaning from error


def _meaning(error: BaseException) -> BaseException:
    """What a driver's error is to podium; itself where it is podium's own mistake, or no driver's."""
    if isinstance(error, sqlite3.Error):
        return _meaning_in_sqlite(error)
    if type(error).__module__.partition(".")[0] == "psycopg":
        return _meaning_in_postgresql(error)
    return error


def _meaning_in_sqlite(error: sqlite3.Error) -> BaseException:
    if isinstance(error, sqlite3.IntegrityError):
        is_unique = "UNIQUE" in str(error) or "PRIMARY KEY" in str(error)
        return UniqueViolation(str(error)) if is_unique else error
    if isinstance(error, sqlite3.OperationalError):
        return _unavailable(error)
    if type(error) is sqlite3.DatabaseError:
        return _damaged(str(error))
    return error


def _damaged(problem: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"The SQLite database is damaged: {problem}.", remedy="Restore it from a backup."
    )


def _meaning_in_postgresql(error: BaseException) -> BaseException:
    state = getattr(error, "sqlstate", None)
    if state == "23505":
        return UniqueViolation(str(error))
    # Class 08 is a lost connection, 57 a server going down, 53 one without resources, 40 a deadlock,
    # 28 a wrong password, 3D a wrong name, 25006 a standby, 42501 a missing right.
    if state is None or state[:2] in {"08", "57", "53", "40", "28", "3D"} or state in {"25006", "42501"}:
        return _unavailable(error)
    return error


def _unavailable(error: BaseException) -> DatabaseUnavailable:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    remedies = {
        "database is locked": "Another process holds the database for long; try again.",
        "readonly": "Give yourself write permission on the database file and its folder.",
        "unable to open": "Check that the folder of PODIUM_URL exists and can be written.",
        "full": "Free some room on the disk and try again; nothing was changed.",
        "disk I/O error": "Check that the disk has room and is sound, and try again; nothing was changed.",
        "password": "Check the user and password in PODIUM_URL.",
        "does not exist": "Check the names in PODIUM_URL; podium does not create a PostgreSQL database.",
    }
    remedy = next(
        (r for key, r in remedies.items() if key in text), "Check PODIUM_URL and that the server runs."
    )
    return DatabaseUnavailable(f"The database did not answer: {text}.", remedy=remedy)


class Database:
    """A pool of connections to one database.

    `transaction` and `reading` give a `Transaction` for the calling thread. Inside a transaction both join
    it, so that facets compose: what is written inside one outer block is true together.
    """

    def __init__(self, url: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.url = _parsed(url)
        self.dialect = self.url.get_backend_name()
        self.now = now
        self._engine = _engine(self.url)
        self._open = threading.local()
        self._writing = threading.Lock()

    @property
    def path(self) -> Path | None:
        """The SQLite file; None for a server or a database in memory."""
        name = self.url.database
        return Path(name) if self.dialect == "sqlite" and name and name != ":memory:" else None

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine, for migrations."""
        return self._engine

    @property
    def open_transaction(self) -> Transaction | None:
        """The transaction that the calling thread is in."""
        joined: Transaction | None = getattr(self._open, "transaction", None)
        return joined

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Write: committed when the outermost block ends, undone when it raises."""
        joined = self.open_transaction
        if joined is not None:
            yield joined
            return
        with self._turn(), self._connection() as connection:
            transaction = self._begin(connection)
            self._open.transaction = transaction
            try:
                yield transaction
                for prepare in transaction.before_commit:
                    prepare()
                with translated():
                    self._end(connection, "COMMIT")
            except BaseException:
                transaction.close()  # first: the connection may have to be given up
                self._end_quietly(connection)
                self._open.transaction = None
                _follow_rollback(transaction)
                raise
            finally:
                self._open.transaction = None
            transaction.close()
        for follow in transaction.after_commit:
            follow()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read: each statement by itself, or as part of the transaction that is open in this thread."""
        joined = self.open_transaction
        if joined is not None:
            yield joined
            return
        with self._connection() as connection:
            reader = Transaction(connection, self.dialect)
            try:
                yield reader
            finally:
                reader.close()

    def check_pages(self) -> None:
        """Read a whole SQLite file; raises `DatabaseUnavailable` where a part of it is damaged."""
        with self.reading() as reader:
            said = str(reader.one(_CHECK_PAGES)[0])
        if said != "ok":
            raise _damaged(said.splitlines()[-1])

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """SQLite has one writer, and who waits for it looks again ever more seldom: threads queue here first.

        Whoever has waited for very long is left to SQLite, which knows of other processes too.
        """
        taken = self.dialect == "sqlite" and self._writing.acquire(timeout=_TURN_SECONDS)
        try:
            yield
        finally:
            if taken:
                self._writing.release()

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with translated():
            connection = self._engine.raw_connection()
            while _has_ended(connection):
                connection.invalidate()
                connection = self._engine.raw_connection()
        try:
            yield connection
        finally:
            if _has_ended(connection):
                connection.invalidate()
            connection.close()

    def _begin(self, connection: Any) -> Transaction:
        transaction = Transaction(connection, self.dialect)
        with translated():
            # A deferred SQLite transaction that turns into a writer late fails at once when another writes.
            transaction._cursor.execute("BEGIN IMMEDIATE" if self.dialect == "sqlite" else "BEGIN")
        return transaction

    def _end(self, connection: Any, verb: str) -> None:
        cursor = connection.cursor()
        cursor.execute(verb)
        cursor.close()

    def _end_quietly(self, connection: Any) -> None:
        try:
            self._end(connection, "ROLLBACK")
        except Exception:
            # The connection is gone, and with it the transaction; or a full disk has undone it already.
            connection.invalidate()


def _follow_rollback(transaction: Transaction) -> None:
    for follow in transaction.after_rollback:
        # What undid the transaction is what its caller has to hear.
        with suppress(PodiumError):
            follow()


def _parsed(url: str) -> URL:
    path = url.removeprefix("sqlite:///")
    if path not in (url, "") and not path.startswith("file:"):
        return URL.create("sqlite", database=path)  # a folder's name may hold a '?', and means it
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise InvalidSetting(
            "PODIUM_URL is not a database URL.", remedy="Use sqlite:///PATH or postgresql://USER@HOST/NAME."
        ) from error
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise InvalidSetting(
            f"PODIUM_URL names a '{backend}' database.",
            remedy="Use sqlite:///PATH or postgresql://USER@HOST/NAME.",
        )
    return parsed


def _engine(url: URL) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        engine = sa.create_engine(
            url, pool_size=8, max_overflow=24, isolation_level="AUTOCOMMIT", pool_reset_on_return=None
        )
        sa.event.listen(engine, "connect", _prepare_postgresql)
        return engine
    if url.database and url.database != ":memory:":
        refuse_network_file_system(Path(url.database))
    engine = sa.create_engine(
        url, connect_args={"isolation_level": None, "timeout": 30}, pool_reset_on_return=None
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _has_ended(connection: Any) -> bool:
    """Whether the server has closed a connection on which nothing is being asked.

    A server that was stopped says so at once, and then hangs up: both can be read. In fair weather an idle
    connection has nothing to read. This costs a system call, where a ping would cost a round trip.
    """
    driver = connection.driver_connection
    if driver is None or isinstance(driver, sqlite3.Connection):
        return False
    if driver.closed:
        return True
    looking = select.poll()  # select() knows descriptors below 1024 alone
    looking.register(driver.fileno(), select.POLLIN)
    return bool(looking.poll(0))


def _prepare_postgresql(connection: Any, _: object) -> None:
    connection.autocommit = True


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # FULL: a commit that was acknowledged is on the disk, in WAL mode too.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")
