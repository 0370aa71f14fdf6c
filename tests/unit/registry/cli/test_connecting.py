"""What runs for long waits for a database server that is away."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest

from registry.cli import connecting
from registry.cli.connecting import connected
from registry.cli.output import Output
from registry.errors import DatabaseUnavailable, SchemaMismatch

AWAY = DatabaseUnavailable("The database did not answer.", remedy="Check PODIUM_URL.")


@pytest.fixture(autouse=True)
def in_a_command(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connecting, "FIRST_SECONDS", 0.01)
    monkeypatch.setenv("PODIUM_URL", "postgresql://ada@127.0.0.1:1/podium")
    with click.Context(click.Command("up")):
        yield


def answering(monkeypatch: pytest.MonkeyPatch, *answers: object) -> None:
    """What connecting comes to, one time after the other."""
    left = list(answers)

    def connect() -> object:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("registry.connection.connect", connect)


def test_it_tries_again_until_the_database_is_there_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(close=lambda: None)
    answering(monkeypatch, AWAY, AWAY, there)
    said: list[str] = []
    assert connected(Output(False), said.append) is there
    assert said == [
        "The database did not answer. Check PODIUM_URL. Trying again in 0.01 s.",
        "The database did not answer. Check PODIUM_URL. Trying again in 0.02 s.",
    ]


def test_what_waiting_does_not_mend_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, SchemaMismatch("The database is newer."))
    with pytest.raises(SchemaMismatch):
        connected(Output(False), pytest.fail)


def test_a_database_that_is_a_file_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_URL")
    answering(monkeypatch, AWAY)
    with pytest.raises(DatabaseUnavailable):
        connected(Output(False), pytest.fail)


def test_ctrl_c_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, AWAY)

    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connected(Output(False), interrupted)
