"""Workers as processes, killed, stopped and racing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from registry import Registry
from registry.runs import Cause, RunState
from tests.common.registries import Place
from tests.common.waiting import wait_until
from tests.common.workers import Tasks, WorkerProcess

Start = Callable[..., WorkerProcess]

#: For what is about processes alone, and the same whatever the database.
once = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
def tasks(registry: Registry, tmp_path: Path) -> Tasks:
    return Tasks(registry, tmp_path)


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


@pytest.mark.timeout(300)
def test_fifty_runs_and_two_workers_make_fifty_executions(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    runs = [tasks.queue("make", name=f"n{number}", cpu=0.25) for number in range(50)]
    start(lease=10.0), start(lease=10.0)
    ended = [tasks.wait_for_end(run, timeout=250) for run in runs]
    assert {run.state for run in ended} == {RunState.SUCCEEDED}
    assert sorted(tasks.executions()) == sorted(f"n{number}" for number in range(50))
    assert len({registry.runs.attempts(run.id)[0].worker for run in runs}) == 2
    assert registry.leases.held("run/") == []


@pytest.mark.parametrize(
    ("point", "executions"),
    [("run.claimed", 1), ("run.ended", 2), ("run.finished", 1)],
)
def test_a_worker_that_is_killed_anywhere_leaves_a_run_that_ends_once(
    registry: Registry, tasks: Tasks, start: Start, point: str, executions: int
) -> None:
    run = tasks.queue("make", publish="made")
    killed = start(PODIUM_CRASH_AT=point)
    assert killed.wait_for_end() == -signal.SIGKILL
    start()
    ended = tasks.wait_for_end(run)
    assert ended.state is RunState.SUCCEEDED
    assert len(tasks.executions()) == executions
    assert [v.run for v in registry.catalog.versions("made")] == [run.id]
    assert [a.cause for a in registry.runs.attempts(run.id)][:-1] in ([], [Cause.LOST])
    assert registry.leases.held("run/") == []


@once
@pytest.mark.parametrize("point", ["run.started", "run.uploaded"])
def test_a_task_that_is_killed_anywhere_is_tried_again_and_ends_once(
    registry: Registry, tasks: Tasks, start: Start, point: str
) -> None:
    run = tasks.queue("make", publish="made")
    first = start(PODIUM_CRASH_AT=point)
    wait_until(lambda: registry.runs.attempts(run.id)[:1] and _ended(registry, run.id), 60, first.said)
    first.terminate()
    start()
    assert tasks.wait_for_end(run).state is RunState.SUCCEEDED
    causes = [a.cause for a in registry.runs.attempts(run.id)]
    assert (causes[0], causes[-1]) == (Cause.KILLED, None)
    assert [v.run for v in registry.catalog.versions("made")] == [run.id]


def _living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that live on after a while. A zombie does not: its parent has not looked."""

    def left() -> list[psutil.Process]:
        return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    wait_until(lambda: not left(), 20, lambda: str(left()))
    return left()


def _ended(registry: Registry, run: str) -> bool:
    return registry.runs.attempts(run)[0].ended_at is not None


@once
def test_nothing_of_a_worker_outlives_it(tasks: Tasks, start: Start) -> None:
    tasks.queue("make", gate="never")
    worker = start()
    tasks.wait_for_executions(1)
    left = worker.descendants()
    assert len(left) == 3  # a guard, a task, and what later runs are forked from
    worker.process.kill()
    assert not _living(left)


@once
def test_a_dead_worker_of_this_machine_is_known_at_once(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("make", gate="go")
    worker = start(lease=600.0)
    tasks.wait_for_executions(1)
    worker.process.kill()
    worker.process.wait()
    tasks.open("go")
    start(lease=600.0)
    assert tasks.wait_for_end(run, timeout=30).state is RunState.SUCCEEDED
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.LOST, None]


def test_a_worker_that_was_frozen_past_its_lease_changes_nothing_when_it_goes_on(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("make", gate="go", publish="made")
    frozen = start()
    tasks.wait_for_executions(1)
    stopped = frozen.pause()
    start()
    tasks.wait_for_executions(2)  # the second worker has taken it over
    tasks.open("go")
    ended = tasks.wait_for_end(run)
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    wait_until(lambda: "its lease has passed on" in frozen.said(), 30, frozen.said)
    assert frozen.terminate() == 0
    assert registry.runs.get(run.id) == ended
    assert [v.run for v in registry.catalog.versions("made")] == [run.id]
    attempts = registry.runs.attempts(run.id)
    assert [(a.number, a.cause, a.outcome) for a in attempts] == [
        (1, Cause.LOST, RunState.INTERRUPTED),
        (2, None, RunState.SUCCEEDED),
    ]
    assert not [p for p in stopped if p.is_running()]


@once
def test_a_task_whose_worker_is_frozen_ends_itself_before_another_takes_it_over(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    tasks.queue("make", gate="never")
    frozen = start()
    tasks.wait_for_executions(1)
    processes = frozen.carrying()
    frozen.process.send_signal(signal.SIGSTOP)
    assert not _living(processes)
    frozen.process.send_signal(signal.SIGCONT)


def test_a_worker_that_is_asked_to_stop_hands_its_runs_back_at_once(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("make", gate="go")
    first = start(lease=600.0)
    tasks.wait_for_executions(1)
    assert first.terminate() == 0
    assert registry.leases.held("run/") == []
    assert registry.runs.get(run.id).state is RunState.QUEUED
    tasks.open("go")
    start(lease=600.0)
    assert tasks.wait_for_end(run).state is RunState.SUCCEEDED
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.PREEMPTED, None]
    assert registry.workers.all()[0].id != registry.runs.attempts(run.id)[0].worker


@once
def test_a_task_may_save_when_its_worker_is_asked_to_stop(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("stubborn")
    worker = start()
    tasks.wait_for_executions(1)
    assert worker.terminate() == 0
    assert (tasks.outside / "saved").exists()
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.PREEMPTED]


@once
def test_the_first_run_of_a_worker_is_forked_from_what_earlier_runs_have_loaded(
    registry: Registry, place: Place, tasks: Tasks, start: Start
) -> None:
    (place.settings.home / "loaded-by-runs").write_text("datasets")
    worker = start(lease=10.0)
    wait_until(lambda: "has loaded datasets" in worker.said(), 60, worker.said)
    run = tasks.queue("make", gate="go")
    tasks.wait_for_executions(1)
    pid = (tasks.outside / "executions").read_text().split()[1]
    assert "pyarrow" in Path(f"/proc/{pid}/maps").read_text()
    tasks.open("go")
    assert tasks.wait_for_end(run).state is RunState.SUCCEEDED


@once
def test_cancelling_ends_the_processes_of_a_run(registry: Registry, tasks: Tasks, start: Start) -> None:
    run = tasks.queue("make", gate="never")
    worker = start()
    tasks.wait_for_executions(1)
    left = worker.carrying()
    registry.runs.cancel(run.id)
    assert not _living(left)
    wait_until(lambda: "its lease has passed on" in worker.said(), 20, worker.said)
    assert registry.runs.get(run.id).state is RunState.CANCELLED


@once
def test_a_gigabyte_of_binary_output_is_kept_at_both_ends(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("loud", megabytes=1024)
    start(lease=10.0)
    assert tasks.wait_for_end(run, timeout=100).result == 1024
    log = b"".join(part.data for part in registry.runs.log(run.id))
    block = bytes(range(256))
    assert log.startswith(b"first line\n" + block)
    assert log.endswith(block + b"last line\n")
    assert b"bytes of output are not kept" in log
    assert len(log) < 6 * 2**20


@once
def test_more_than_fits_waits_its_turn(registry: Registry, tasks: Tasks, start: Start) -> None:
    runs = [tasks.queue("make", name=f"n{i}", gate=f"go{i}", cpu=2) for i in range(3)]
    start(cpu=2, lease=10.0)
    for index, run in enumerate(runs):
        tasks.wait_for_executions(index + 1)
        assert tasks.executions() == [f"n{i}" for i in range(index + 1)]
        tasks.open(f"go{index}")
        tasks.wait_for_end(run)
