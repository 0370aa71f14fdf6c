"""Runs whose workers are stopped and killed: they go on at the step that was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry import Registry
from registry.runs import Cause, RunState
from tests.common.registries import Place
from tests.common.waiting import wait_until
from tests.common.workers import Tasks, WorkerProcess

Start = Callable[..., WorkerProcess]

COUNT = '''
"""A training that leaves a line outside for each step, and waits for a file there before it ends the step."""

import time
from pathlib import Path

from trainers import Checkpoints, TaskEnvironment
from trainers.checkpoints import Preemption

env = TaskEnvironment("test")

@env.task
def count(outside: str, checkpoints: Checkpoints, steps: int = 14, every: int = 5) -> int:
    restored = checkpoints.load()
    total = int(restored.read_bytes()) if restored else 0
    with Preemption() as preemption:
        for step in range(restored.step if restored else 0, steps):
            with open(Path(outside) / "executions", "a") as lines:
                lines.write(f"{step}\\n")
            gates = Path(outside) / f"{step}", Path(outside) / "all"
            while not (preemption.asked or any(gate.exists() for gate in gates)):
                time.sleep(0.01)
            if (Path(outside) / f"fail-{step}").exists():
                raise ValueError("as it was told to")
            total += step
            if preemption.asked or (step + 1) % every == 0:
                checkpoints.save(step + 1, str(total).encode())
                checkpoints.flush()  # so that what is killed after it has saved for certain
            if preemption.asked:
                checkpoints.hand_back()
    return total
'''


@pytest.fixture
def tasks(registry: Registry, tmp_path: Path) -> Tasks:
    made = Tasks(registry, tmp_path)
    made.file.write_text(COUNT)
    return made


@pytest.fixture
def start(place: Place, tmp_path: Path) -> Iterator[Start]:
    """Starts workers, and ends what is left of them."""
    started: list[WorkerProcess] = []

    def begin(**options: object) -> WorkerProcess:
        started.append(WorkerProcess(place, tmp_path, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for worker in started:
        worker.end()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_run_outlives_ten_workers_and_does_each_step_once(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("count", retries=0)
    for step in range(10):
        worker = start()
        wait_until(lambda step=step: str(step) in tasks.executions(), 60, worker.said)  # type: ignore[misc]
        assert worker.terminate() == 0
        assert registry.runs.get(run.id).state is RunState.QUEUED
        assert registry.leases.held("run/") == []  # handed back, not left to run out
    tasks.open("all")
    start()
    ended = tasks.wait_for_end(run)
    assert (ended.state, ended.result) == (RunState.SUCCEEDED, sum(range(14)))
    assert tasks.executions() == [str(step) for step in range(14)]
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.PREEMPTED] * 10 + [None]
    said = b"".join(part.data for part in registry.runs.log(run.id, limit=1000)).decode()
    assert "Traceback" not in said
    assert said.count("stopped as asked; its state is saved") == 10


def test_a_run_whose_worker_is_killed_repeats_what_was_not_saved(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("count")
    for step in range(7):
        tasks.open(str(step))
    worker = start()
    wait_until(lambda: "7" in tasks.executions(), 60, worker.said)
    worker.process.kill()
    worker.process.wait()
    tasks.open("all")
    start()
    ended = tasks.wait_for_end(run)
    assert (ended.state, ended.result) == (RunState.SUCCEEDED, sum(range(14)))
    assert tasks.executions() == [str(step) for step in (*range(8), *range(5, 14))]
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.LOST, None]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("point", "saved"), [("checkpoint.uploaded", 0), ("checkpoint.recorded", 5)])
def test_a_checkpoint_is_there_whole_or_not_at_all(
    registry: Registry, tasks: Tasks, start: Start, point: str, saved: int
) -> None:
    run = tasks.queue("count", retries=1)
    tasks.open("all")
    first = start(PODIUM_CRASH_AT=point)
    wait_until(lambda: _ended(registry, run.id), 60, first.said)
    first.terminate()
    assert [each.step for each in registry.checkpoints.of(run.id)] == [5][: saved // 5]
    start()
    ended = tasks.wait_for_end(run)
    assert (ended.state, ended.result) == (RunState.SUCCEEDED, sum(range(14)))
    assert tasks.executions() == [str(step) for step in (*range(5), *range(saved, 14))]


def _ended(registry: Registry, run: str) -> bool:
    return any(attempt.ended_at for attempt in registry.runs.attempts(run))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_run_that_failed_goes_on_after_its_recover(registry: Registry, tasks: Tasks, start: Start) -> None:
    run = tasks.queue("count", retries=0)
    tasks.open("all")
    tasks.open("fail-6")
    start()
    assert tasks.wait_for_end(run).state is RunState.FAILED
    (tasks.outside / "fail-6").unlink()
    registry.runs.recover(run.id)
    ended = tasks.wait_for_end(run)
    assert (ended.state, ended.result) == (RunState.SUCCEEDED, sum(range(14)))
    assert tasks.executions() == [str(step) for step in (*range(7), *range(5, 14))]
