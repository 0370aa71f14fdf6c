"""`podium cache explain`: any name that `podium runs tree` shows is a step to it."""

from __future__ import annotations

import pytest

from registry.protocol import Registry
from registry.runs import Run, RunRequest
from tests.common.registries import running
from tests.unit.trainers.cli.conftest import Podium


@pytest.fixture
def top(registry: Registry) -> Run:
    """pipeline -> outer -> train, train; and pipeline -> train."""
    _, claim = running(registry, "pipeline")
    outer = registry.steps.ask(RunRequest("p.py:outer", parent=claim.run.id, place="/outer#1"))
    for number in (1, 2):
        registry.steps.ask(RunRequest("p.py:train", parent=outer.id, place=f"/train#{number}"))
    registry.steps.ask(RunRequest("p.py:judge", parent=claim.run.id, place="/judge#1"))
    return claim.run


@pytest.mark.parametrize("name", ["outer", "outer#1", "judge", "outer/train#2", "train#1", "pipeline"])
def test_what_the_tree_shows_is_explained(podium: Podium, top: Run, name: str) -> None:
    assert podium("cache", "explain", top.id, name, "--json").json["cached"] is False


def test_a_run_that_was_asked_for_by_itself_is_said_to_be_no_step(podium: Podium, top: Run) -> None:
    assert "asked for by itself" in podium("cache", "explain", top.id, "pipeline").stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trian", "Steps are: pipeline, outer, outer/train#1, outer/train#2, judge."),
        ("jugde", "Did you mean judge?"),
    ],
)
def test_a_name_that_the_tree_does_not_show_is_refused(
    podium: Podium, top: Run, name: str, said: str
) -> None:
    refused = podium("cache", "explain", top.id, name)
    assert (refused.status, said in refused.stderr) == (2, True)
