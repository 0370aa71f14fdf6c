"""`podium run` as it is asked about: help of a task's own, and names that were mistyped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.trainers.cli.conftest import Podium

TASK = '''
from typing import Literal
from registry import Adapter, Dataset, Model
from trainers import TaskEnvironment

@TaskEnvironment("cpu").task
def train(
    base: Model, data: Dataset | None = None, way: Literal["lora", "full"] = "lora", max_rate: float = 0.5
):
    """Train a little on ``data``.

    The rate falls from ``max_rate``.

    Args:
        base: what is trained
        way (str): how
    """
'''


@pytest.fixture
def task(tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "tune.py").write_text(TASK)
    return f"{folder / 'tune.py'}:train"


def test_help_of_a_task_shows_its_own_parameters(podium: Podium, task: str) -> None:
    shown = podium("run", task, "--help")
    assert shown.status == 0
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    for line in (
        "Train a little on data.",
        "--base Model what is trained [required]",
        "--data Dataset [default: none]",
        "--way lora|full how [default: lora]",
        "--max-rate float The rate falls from max_rate. [default: 0.5]",
    ):
        assert line in lines
    assert any(line.startswith("--publish NAME") for line in lines)


@pytest.mark.parametrize("words", [("sft", "--help"), ("--detach", "sft", "-h"), ("sft", "--rank", "--help")])
def test_help_of_a_recipe_needs_no_argument(podium: Podium, words: tuple[str, ...]) -> None:
    shown = podium("run", *words)
    assert (shown.status, "--rank int" in shown.stdout) == (0, True)


def test_help_without_a_task_is_that_of_the_command(podium: Podium) -> None:
    assert "RECIPE|FILE:TASK" in podium("run", "--help").stdout


@pytest.mark.parametrize(
    ("words", "said", "meant"),
    [
        (("run", "sftt"), "There is no recipe 'sftt'.", "Did you mean sft?"),
        (("run", "sft", "--rnak", "3"), "'sft' has no parameter 'rnak'.", "Did you mean --rank"),
        (("run", "sft"), "'sft' needs '--base' and '--data'.", "--help"),
        (("run", "nope", "--help"), "There is no recipe 'nope'.", "Recipes are"),
        (("promot", "x", "y"), "There is no command 'promot'.", "Did you mean promote"),
        (("runs", "lst"), "No such command 'lst'.", "Did you mean 'list'?"),
        (("promote", "a:v1", "b", "--expct", "v1"), "No such option '--expct'.", "--expect"),
    ],
)
def test_a_mistyped_word_is_answered_with_what_was_meant(
    podium: Podium, words: tuple[str, ...], said: str, meant: str
) -> None:
    refused = podium(*words)
    assert refused.status == 2
    assert said in refused.stderr and meant in refused.stderr
    assert max(map(len, refused.stderr.splitlines())) < 200
