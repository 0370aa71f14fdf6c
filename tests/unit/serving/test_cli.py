"""`podium serve`: what is said at once, before anything is started."""

from __future__ import annotations

import pytest

from registry.cli.root import run
from tests.common.registries import Place
from tests.common.serving import World


@pytest.fixture(autouse=True)
def here(sqlite_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sqlite_place.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "bot=ticket-router:v1"], "--base"),
        (["--base", "tiny:v1", "--name", "bot"], "is not NAME=REF"),
        (["--base", "tiny:v1", "--name", "bot=a:v1", "--name", "bot=b:v1"], "given twice"),
        (["--base", "tiny"], "does not say which version"),
        (["--base", "nobody:v1"], "nobody"),
        (["--base", "tiny:v9"], "v9"),
        (["--base", "ticket-router:v1"], "must be a model"),
        (["--base", "tiny:v1", "--name", "bot=ticket-router:v7"], "v7"),
        (["--base", "tiny:v1", "--max-lora-rank", "20"], "not a rank"),
        (["--base", "tiny:v1", "--port", "99999"], "99999"),
        (["--base", "tiny:v1", "--replicas", "0"], "0 replicas"),
    ],
)
def test_bad_input_is_refused_with_status_two(
    world: World, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    world.publish(1)
    assert run(["serve", *arguments]) == 2
    assert words in capsys.readouterr().err
