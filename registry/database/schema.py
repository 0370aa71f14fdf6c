"""Bringing a database to the schema that this code was written for."""

from __future__ import annotations

import uuid
from pathlib import Path

import sqlalchemy as sa

from registry.database.engine import Database, translated
from registry.database.statements import sql
from registry.errors import DatabaseUnavailable, SchemaMismatch

HEAD = "0001"  # the newest file in migrations/versions
_MIGRATION_LOCK = 0x706F6469756D  # any number that only podium's migrations lock

_VERSION_TABLE = {
    "sqlite": sql("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"),
    "postgresql": sql("SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL"),
}
_REVISION = sql("SELECT version_num FROM alembic_version")
_IDENTIFY = sql("""
    INSERT INTO podium (one, database_id, created_at, event_sequence, incarnation, relayed_sequence)
    VALUES (1, :database_id, :now, 0, 1, 0) ON CONFLICT (one) DO NOTHING
""")
_IDENTITY = sql("SELECT database_id FROM podium WHERE one = 1")


def prepare(database: Database) -> str:
    """Create or migrate the schema where needed; the database's id.

    Raises:
        SchemaMismatch: a newer podium has migrated this database.
    """
    if _revision(database) != HEAD:
        _migrate(database)
    with database.reading() as reader:
        found = reader.first(_IDENTITY)
    return str(found[0]) if found else _identify(database)


def _identify(database: Database) -> str:
    with database.transaction() as transaction:
        transaction.execute(_IDENTIFY, database_id=uuid.uuid4().hex[:12], now=database.now())
        return str(transaction.one(_IDENTITY)[0])


def _revision(database: Database) -> str | None:
    if database.path is not None:
        _make_folder(database.path.parent)
    with database.reading() as reader:
        if reader.first(_VERSION_TABLE[database.dialect]) is None:
            return None
        row = reader.first(_REVISION)
    return str(row[0]) if row else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(
            f"The folder {folder} of the database cannot be made: {error.strerror}.",
            remedy="Set PODIUM_HOME or PODIUM_URL to a place where you may write.",
        ) from error


def _migrate(database: Database) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    with translated(), database.engine.connect() as connection:
        _lock(connection)
        revision = _revision_on(connection)
        if revision is not None and revision not in known:
            raise SchemaMismatch(
                f"The database has schema {revision}, which this podium (schema {HEAD}) does not know.",
                remedy="Upgrade podium; the database was not touched.",
                schema=revision,
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.exec_driver_sql("COMMIT")


def _lock(connection: sa.Connection) -> None:
    """Let one process migrate; the others wait and then find it done."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")


def _revision_on(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None
