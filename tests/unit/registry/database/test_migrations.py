"""A migrated database is what the tables declare, on SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import registry.database
from registry.database.engine import Database
from registry.database.schema import HEAD, prepare
from registry.database.tables import metadata

_SCRIPTS = Path(registry.database.__file__).parent / "migrations"
_ADVICE = "the tables have changed: run python -m tests.common.first_migration"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Two empty databases of one kind."""
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        return server.database(), server.database()
    return f"sqlite:///{tmp_path}/migrated.db", f"sqlite:///{tmp_path}/declared.db"


def shape(engine: sa.Engine) -> dict[str, Any]:
    """All that a database says of its tables."""
    inspector = sa.inspect(engine)
    return {
        table: {
            "columns": {c["name"]: _column(c) for c in inspector.get_columns(table)},
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "foreign": _sorted(inspector.get_foreign_keys(table), "name"),
            "unique": _sorted(inspector.get_unique_constraints(table), "name"),
            "checks": _sorted(inspector.get_check_constraints(table)),
            "indexes": _sorted(inspector.get_indexes(table)),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def _column(column: Any) -> tuple[str, bool, str | None]:
    return str(column["type"]), column["nullable"], column.get("default")


def _sorted(found: Any, *without: str) -> list[str]:
    return sorted(str(_plain({k: v for k, v in each.items() if k not in without})) for each in found)


def _plain(value: Any) -> Any:
    """Reflection gives a partial index's condition as an object without a readable form."""
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return str(value) if isinstance(value, sa.ClauseElement) else value


def test_a_migrated_database_is_what_the_tables_declare(urls: tuple[str, str]) -> None:
    with Database(urls[0]) as migrated, Database(urls[1]) as declared:
        prepare(migrated)
        metadata.create_all(declared.engine)
        assert shape(migrated.engine) == shape(declared.engine), _ADVICE


def test_nothing_is_left_to_migrate(urls: tuple[str, str]) -> None:
    with Database(urls[0]) as database:
        prepare(database)
        with database.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == [], _ADVICE


def test_the_newest_migration_is_the_one_that_the_code_expects() -> None:
    script = ScriptDirectory(str(_SCRIPTS))
    assert script.get_current_head() == HEAD
    assert script.get_bases() == ["0001"]
