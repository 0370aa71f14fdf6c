"""One SQL text for two databases."""

from __future__ import annotations

from registry.database.statements import sql


def test_parameters_are_written_as_each_driver_takes_them() -> None:
    statement = sql("SELECT a FROM t WHERE b = :b AND c = :long_name2")
    assert statement.sqlite == "SELECT a FROM t WHERE b = :b AND c = :long_name2"
    assert statement.postgresql == "SELECT a FROM t WHERE b = %(b)s AND c = %(long_name2)s"


def test_locks_are_for_the_server_alone() -> None:
    statement = sql("SELECT a FROM t {lock}")
    assert statement.sqlite.strip() == "SELECT a FROM t"
    assert statement.postgresql == "SELECT a FROM t FOR UPDATE"
    assert sql("{share} {skip_locked}").postgresql == "FOR SHARE FOR UPDATE SKIP LOCKED"


def test_a_cast_and_a_percent_sign_are_no_parameters() -> None:
    assert sql("SELECT a::text, b LIKE 'x%' FROM t").postgresql == "SELECT a::text, b LIKE 'x%%' FROM t"
