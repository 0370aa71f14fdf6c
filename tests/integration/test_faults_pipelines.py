"""Pipelines of twelve steps whose drivers, steps and workers are killed: nothing lost, nothing twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from registry import Registry
from registry.runs import Run, RunState
from tests.common.registries import Place
from tests.common.waiting import wait_until
from tests.common.workers import WorkerProcess, wait_for_end
from trainers.submitting import locate, prepare

CODE = """
import os, time
from pathlib import Path
from registry import Dataset
from trainers import Resources, TaskEnvironment, gather_map

env = TaskEnvironment("test", resources=Resources(cpu=1))

def say(outside, name):
    with open(Path(outside) / "executions", "a") as lines:
        lines.write(f"{name} {os.getpid()} {time.time()}\\n")

@env.task
def source(outside: str, run: str) -> Dataset:
    say(outside, f"{run}/source")
    Path("made").mkdir()
    Path("made/number.txt").write_text("1")
    return Dataset("made")

@env.task
def add(data: Dataset, x: int, outside: str, run: str) -> int:
    say(outside, f"{run}/add-{x}")
    time.sleep(0.1)
    return int((data / "number.txt").read_text()) + x

@env.task
def total(numbers: list[int], outside: str, run: str) -> int:
    say(outside, f"{run}/total")
    return sum(numbers)

@env.task
async def pipeline(outside: str, run: str) -> int:
    say(outside, f"{run}/driver")
    data = await source(outside, run)
    first = await gather_map(lambda x: add(data, x, outside, run), range(5), concurrency=3)
    second = [await add(data, number, outside, run) for number in (10, 11, 12, 13, 14)]
    return await total([*first, *second], outside, run)
"""
RIGHT = sum(x + 1 for x in [*range(5), *range(10, 15)])
STEPS = 12

pytestmark = [pytest.mark.parametrize("place", ["sqlite"], indirect=True)]


class Scene:
    """Two workers, the pipelines that they carry out, and what these have left outside."""

    def __init__(self, registry: Registry, place: Place, folder: Path) -> None:
        self.registry, self._place, self._folder = registry, place, folder
        self._outside = folder / "outside"
        self._outside.mkdir()
        (folder / "code").mkdir()
        (folder / "code" / "pipe.py").write_text(CODE)
        self._located = locate(registry, f"{folder / 'code' / 'pipe.py'}:pipeline")
        self.workers = [self._worker() for _ in range(2)]
        self.runs: list[Run] = []

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self._place, self._folder, cpu=2, lease=4.0)

    def queue(self) -> None:
        given = {"outside": str(self._outside), "run": str(len(self.runs))}
        self.runs.append(self.registry.runs.queue(prepare(self.registry, self._located, given)))

    def lines(self) -> list[tuple[str, int, float]]:
        """What executions have left: whose, in which process, when it began."""
        path = self._outside / "executions"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(name, int(pid), float(at)) for name, pid, at in words]

    def living(self) -> list[Run]:
        return [run for run in self.runs if self.registry.runs.get(run.id).ended_at is None]

    def kill(self, chance: random.Random) -> bool:
        """Kill a worker, or the process of a driver or step that lives; whether there was one."""
        if chance.random() < 0.15:
            victim = chance.randrange(len(self.workers))
            self.workers[victim].process.kill()
            self.workers[victim].process.wait()
            self.workers[victim] = self._worker()
            return True
        here = {child.pid for worker in self.workers for child in worker.descendants()}
        there = [pid for _, pid, _ in self.lines()[-20:] if pid in here]
        if not there:
            return False
        with suppress(psutil.NoSuchProcess):
            psutil.Process(chance.choice(there)).kill()
        return True

    def close(self) -> None:
        for worker in self.workers:
            worker.end()


@pytest.fixture
def scene(registry: Registry, place: Place, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(registry, place, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(12, marks=pytest.mark.timeout(400)),
        pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_whatever_is_killed_each_run_ends_right_and_no_finished_step_runs_again(
    scene: Scene, kills: int
) -> None:
    chance, done = random.Random(kills), 0
    while done < kills:
        if len(scene.living()) < 3:
            scene.queue()
        time.sleep(chance.uniform(0.2, 1.2))
        done += scene.kill(chance)
    ended = [wait_for_end(scene.registry, run.id, 300) for run in scene.runs]
    assert [(run.state, run.result) for run in ended] == [(RunState.SUCCEEDED, RIGHT)] * len(ended)
    for run in ended:
        assert len(scene.registry.steps.of(run.id)) == STEPS
    check_executions(scene)
    wait_until(lambda: not scene.registry.leases.held("run/"), 30, lambda: "leases are left")
    assert no_process_is_left(scene)


def check_executions(scene: Scene) -> None:
    """No step began again after it had been finished, and none more often than the journal says."""
    began: dict[str, list[float]] = {}
    for name, _, at in scene.lines():
        began.setdefault(name, []).append(at)
    for number, run in enumerate(scene.runs):
        steps = scene.registry.steps.of(run.id)
        names = Counter(_name(step) for step in steps)
        assert max(names.values()) == 1
        for step in steps:
            times = began[f"{number}/{_name(step)}"]
            assert step.ended_at is not None
            assert max(times) <= step.ended_at.timestamp(), step
            assert len(times) <= step.attempts


def _name(step: Run) -> str:
    short = step.task.rpartition(":")[2]
    return f"{short}-{step.arguments['x']}" if short == "add" else short


def no_process_is_left(scene: Scene) -> bool:
    """Whether all that executed anything has ended."""
    return not [pid for _, pid, _ in scene.lines() if psutil.pid_exists(pid) and _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    """The number may have been given to another program since."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and "trainers" in " ".join(process.cmdline())
    return False
