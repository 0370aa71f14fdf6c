"""Bringing a database to the schema: once, by one process, and never backwards."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from registry.database.engine import Database
from registry.database.schema import HEAD, prepare
from registry.database.statements import sql
from registry.errors import DatabaseUnavailable, InvalidSetting, SchemaMismatch


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/podium.db"


def revision(database: Database) -> str:
    with database.reading() as reader:
        return str(reader.one(sql("SELECT version_num FROM alembic_version"))[0])


def test_a_new_database_gets_the_schema_and_an_identity(url: str) -> None:
    with Database(url) as database:
        identity = prepare(database)
        assert revision(database) == HEAD
        assert prepare(database) == identity
        assert len(identity) == 12


def test_opening_again_finds_the_identity_without_migrating(url: str) -> None:
    with Database(url) as database:
        identity = prepare(database)
    with Database(url) as database:
        statements: list[str] = []
        sa.event.listen(database.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
        assert prepare(database) == identity
        assert not [s for s in statements if s.startswith(("CREATE", "ALTER", "BEGIN"))]


def test_a_database_of_a_newer_schema_is_refused_and_not_touched(url: str) -> None:
    with Database(url) as database:
        prepare(database)
        with database.transaction() as transaction:
            transaction.execute(sql("UPDATE alembic_version SET version_num = '9999'"))
    with Database(url) as database:
        with pytest.raises(SchemaMismatch, match="schema 9999") as refusal:
            prepare(database)
        assert "Upgrade podium" in refusal.value.remedy
        assert revision(database) == "9999"


def test_threads_that_open_a_new_database_at_once_agree_on_one_identity(url: str) -> None:
    def opened(_: int) -> str:
        with Database(url) as database:
            return prepare(database)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(opened, range(4)))) == 1


def test_processes_that_open_a_new_database_at_once_agree_on_one_identity(url: str) -> None:
    program = """
import sys
from registry.database.engine import Database
from registry.database.schema import prepare
database = Database(sys.argv[1])
print(prepare(database))
"""
    opening = [
        subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = [process.communicate(timeout=60)[0].strip() for process in opening]
    assert [process.returncode for process in opening] == [0, 0, 0]
    assert len(set(told)) == 1
    assert len(told[0]) == 12


@pytest.mark.parametrize("url", ["mysql://host/name", "nonsense", "", "https://podium.example"])
def test_an_address_of_no_database_that_podium_knows_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(InvalidSetting, match="PODIUM_URL") as refusal:
        Database(url)
    assert "sqlite:///" in refusal.value.remedy


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    nowhere = Database("postgresql://ada:secret@127.0.0.1:1/podium")
    with nowhere, pytest.raises(DatabaseUnavailable) as refusal:
        prepare(nowhere)
    assert "secret" not in refusal.value.message + refusal.value.remedy
    assert "PODIUM_URL" in refusal.value.remedy


def test_a_file_that_is_no_database_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "podium.db").write_bytes(b"not a database at all, however long it may be" * 100)
    with Database(f"sqlite:///{tmp_path}/podium.db") as database, pytest.raises(DatabaseUnavailable):
        prepare(database)


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with Database(f"sqlite:///{tmp_path}/file/podium.db") as database, pytest.raises(DatabaseUnavailable):
        prepare(database)


def test_a_migration_that_is_killed_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "podium.db"
    with sqlite3.connect(path) as begun:
        begun.execute("PRAGMA journal_mode=WAL")
        begun.execute("BEGIN IMMEDIATE")
        begun.execute("CREATE TABLE alembic_version (version_num TEXT)")
        begun.rollback()
    with Database(f"sqlite:///{path}") as database:
        assert prepare(database)
