"""Transactions, and what the drivers' errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from registry.database.engine import Database, UniqueViolation, to_text, to_time
from registry.database.statements import sql
from registry.errors import DatabaseUnavailable
from tests.common.registries import Place
from tests.common.waiting import wait_until

PUT = sql("INSERT INTO lease (name, holder, epoch, beat) VALUES (:name, :holder, 1, 0)")
COUNT = sql("SELECT COUNT(*) FROM lease")


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """A migrated database."""
    place.open()
    return place.database()


def count(database: Database) -> int:
    with database.reading() as reader:
        return int(reader.one(COUNT)[0])


def put(database: Database, name: str, holder: str = "me") -> None:
    with database.transaction() as transaction:
        transaction.execute(PUT, name=name, holder=holder)


def test_a_block_that_ends_is_committed_and_one_that_raises_is_undone(database: Database) -> None:
    put(database, "a")
    with pytest.raises(KeyboardInterrupt), database.transaction() as transaction:
        transaction.execute(PUT, name="b", holder="me")
        raise KeyboardInterrupt
    assert count(database) == 1


def test_a_second_row_with_the_same_key_is_a_unique_violation(database: Database) -> None:
    put(database, "a")
    with pytest.raises(UniqueViolation):
        put(database, "a")
    assert count(database) == 1


def test_what_prepares_the_commit_is_part_of_the_transaction(database: Database) -> None:
    with database.transaction() as transaction:
        transaction.before_commit.append(lambda: transaction.execute(PUT, name="late", holder="me") and None)
    assert count(database) == 1


def test_what_follows_the_commit_runs_only_after_one(database: Database) -> None:
    ran: list[str] = []
    with database.transaction() as transaction:
        transaction.after_commit.append(lambda: ran.append("done"))
        assert ran == []
    with pytest.raises(RuntimeError), database.transaction() as transaction:
        transaction.after_commit.append(lambda: ran.append("never"))
        raise RuntimeError
    assert ran == ["done"]


def test_many_threads_may_use_one_database(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: put(database, f"lease-{number}"), range(40)))
    assert count(database) == 40


def test_values_of_any_kind_are_parameters_and_never_sql(database: Database) -> None:
    nasty = "x'); DROP TABLE lease; -- %s :name {lock} \N{SNOWMAN}"
    put(database, nasty)
    with database.reading() as reader:
        assert reader.one(sql("SELECT name FROM lease WHERE name = :name"), name=nasty)[0] == nasty


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=30))])
def test_a_time_comes_back_as_the_moment_it_was(zone: timezone) -> None:
    moment = datetime(2026, 11, 30, 23, 59, 59, 1, tzinfo=zone)
    assert to_time(to_text(moment)) == moment


def test_times_in_text_sort_as_they_do() -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n * 499_999) for n in range(6)]
    assert sorted(map(to_text, moments)) == [to_text(moment) for moment in moments]


def test_a_full_disk_undoes_the_transaction_and_says_so(sqlite_place: Place) -> None:
    sqlite_place.open()
    database = sqlite_place.database()

    def allow_no_more_pages(connection: Any, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(database.engine, "connect", allow_no_more_pages)
    with pytest.raises(DatabaseUnavailable, match="full") as refusal:
        put(database, "a", "x" * 1_000_000)
    assert "Free some room" in refusal.value.remedy
    assert count(database) == 0


def test_a_writer_who_waits_too_long_is_told(sqlite_place: Place) -> None:
    sqlite_place.open()
    first, second = sqlite_place.database(), sqlite_place.database()
    sa.event.listen(second.engine, "connect", lambda c, _: c.execute("PRAGMA busy_timeout=50"))
    with first.transaction(), pytest.raises(DatabaseUnavailable, match="locked") as refusal:
        put(second, "a")
    assert "Another process holds the database" in refusal.value.remedy


@pytest.mark.integration
def test_a_server_that_went_away_is_found_again(server_place: Place, postgres_server: Any) -> None:
    server_place.open()
    database = server_place.database()
    put(database, "a")
    with pytest.raises(DatabaseUnavailable), database.transaction():
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        put(database, "b")
    wait_until(lambda: _works(database), 20, "the database is reached again")
    assert count(database) == 2


def _works(database: Database) -> bool:
    try:
        put(database, "c")
    except DatabaseUnavailable:
        return False
    return True


def test_a_read_only_file_is_said_to_be_one(sqlite_place: Place, tmp_path: Path) -> None:
    sqlite_place.open()
    database = Database(f"sqlite:///file:{sqlite_place.settings.home}/podium.db?mode=ro&uri=true")
    with database, pytest.raises(DatabaseUnavailable):
        put(database, "a")
