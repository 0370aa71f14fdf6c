"""Running `podium` in this process, as fast as a function call, against a registry of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from registry.cli.output import debugging
from registry.cli.root import run
from registry.store.stored import StoredRegistry
from tests.common import content
from tests.common.registries import Maker, Place


@dataclass(frozen=True)
class Result:
    """What a command line printed, and its exit status."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


Podium = Callable[..., Result]


@pytest.fixture
def place(sqlite_place: Place) -> Place:
    """What commands print does not depend on the database: here it is SQLite."""
    return sqlite_place


@pytest.fixture
def podium(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Podium:
    """Run a command line. Nothing that it prints may ever hold a traceback."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)

    def podium(*arguments: object) -> Result:
        token = debugging.set(False)
        try:
            status = run([str(argument) for argument in arguments])
        finally:
            debugging.reset(token)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Result(status, captured.out, captured.err)

    return podium


@pytest.fixture
def registry(place: Place) -> StoredRegistry:
    return place.open()


@pytest.fixture
def bot(make: Maker) -> Maker:
    """Three versions of the adapter ``bot``, the base ``tiny`` and the data ``held-out``."""
    make.model("tiny")
    make.dataset("held-out")
    for _ in range(3):
        make.adapter("bot")
    return make


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """The folder of an adapter that was not pushed yet."""
    return content.write_adapter(tmp_path / "adapter", seed=77)
