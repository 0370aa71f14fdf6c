"""Pipelines that cannot work: said at once, in the driver, and nothing is left in the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry import Registry
from registry.errors import InvalidApp, InvalidInput, RunRefused
from registry.resources import Resources
from registry.runs import MOST_DEPTH, Cause, Run, RunRequest, RunState
from tests.common.registries import Place
from trainers import Task, TaskEnvironment
from trainers.driving import Driver
from trainers.forking import recover
from trainers.submitting import locate, prepare

ROOM = Resources(cpu=8, memory="8Gi")
env = TaskEnvironment("test")


@env.task
def keep(x: Any) -> Any:
    return x


@env.task
async def again(x: int) -> int:
    return await again(x + 1)


@pytest.fixture
def registry(sqlite_place: Place) -> Registry:
    return sqlite_place.open()


def drive(registry: Registry, folder: Path, run: Run, task: Task[..., Any], **given: Any) -> Any:
    """What a pipeline returns or raises that is the run ``run``."""
    (claim,) = registry.runs.claim("driver", free=ROOM, total=ROOM, only=run.root)
    (folder / "code").symlink_to(Path(__file__).parent)
    return Driver(registry.acting(claim.origin), claim.run, folder).drive(task, given)


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize("make", [object, _circle, lambda: lambda: 1, lambda: {"x": {1, object()}}])
def test_an_argument_that_cannot_be_recorded_is_refused_in_the_pipeline(
    registry: Registry, tmp_path: Path, make: Callable[[], Any]
) -> None:
    async def pipeline() -> None:
        await keep(make())

    run = registry.runs.queue(RunRequest("pipeline"))
    with pytest.raises(InvalidInput, match="cannot be recorded"):
        drive(registry, tmp_path, run, Task(pipeline))
    assert registry.steps.of(run.id) == []


def test_a_task_that_calls_itself_without_end_is_told_so(registry: Registry, tmp_path: Path) -> None:
    run = registry.runs.queue(RunRequest("again"))
    for depth in range(MOST_DEPTH):
        (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM, only=run.root)
        acting = registry.acting(claim.origin)
        request = RunRequest("again", parent=claim.run.id, place="/again#1", arguments={"x": depth})
        run = acting.steps.ask(replace(request, signature=str(depth)))
    with pytest.raises(RunRefused, match="would be one more"):
        drive(registry, tmp_path, run, again, x=0)


def test_a_run_whose_file_cannot_be_imported_any_more_is_not_recovered(
    registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "project" / "pipe.py"
    file.parent.mkdir()
    text = (
        "from trainers import TaskEnvironment\nenv = TaskEnvironment('x')\n"
        "@env.task\nasync def pipeline() -> int:\n    return 1\n"
    )
    file.write_text(text)
    run = registry.runs.queue(prepare(registry, locate(registry, f"{file}:pipeline"), {}))
    (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM)
    registry.acting(claim.origin).runs.end(run.id, Cause.ERROR)
    file.write_text("import nothing_of_that_name\n" + text)
    with pytest.raises(InvalidApp, match="nothing_of_that_name"):
        recover(registry, run.id)
    assert registry.runs.get(run.id).state is RunState.FAILED
    assert recover(registry, run.id, recorded_code=True).run.state is RunState.QUEUED
