"""Drivers and steps whose worker was stopped past its lease: all that they write then is refused."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from registry import Registry
from registry.runs import Cause, Run, RunState
from tests.common.pipelines import Pipelines
from tests.common.registries import Place
from tests.common.waiting import wait_until
from tests.common.workers import WorkerProcess

pytestmark = [pytest.mark.timeout(240), pytest.mark.parametrize("place", ["sqlite"], indirect=True)]

Start = Callable[[], WorkerProcess]


@pytest.fixture
def pipelines(registry: Registry, tmp_path: Path) -> Pipelines:
    return Pipelines(registry, tmp_path)


@pytest.fixture
def start(place: Place, tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def begin() -> WorkerProcess:
        started.append(WorkerProcess(place, tmp_path, lease=3.0))
        return started[-1]

    yield begin
    for worker in started:
        worker.end()


def journal(registry: Registry, run: Run) -> list[Any]:
    """All that is recorded of a pipeline: its run, its steps, and their attempts."""
    found = [registry.runs.get(run.id), *registry.steps.of(run.id)]
    return [(each, registry.runs.attempts(each.id)) for each in found]


def took_over(registry: Registry, pipelines: Pipelines, run: Run, driver: psutil.Process) -> bool:
    """Whether another worker executes driver and step."""
    began = pipelines.executions().count("train") == 2 and pipelines.process_of("driver") != driver
    return began and registry.runs.get(run.id).attempts == 2


def status_of(ended: psutil.Process) -> int:
    """The exit status of a process that nobody has waited for."""
    return int(Path(f"/proc/{ended.pid}/stat").read_text().split()[-1]) >> 8


def assert_nothing_stale_counts(
    registry: Registry,
    pipelines: Pipelines,
    frozen: WorkerProcess,
    stopped: Sequence[psutil.Process],
    run: Run,
) -> None:
    """Let what was stopped go on, and see that it changes nothing."""
    ended = journal(registry, run)
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    wait_until(lambda: frozen.said().count("its lease has passed on") == 2, 30, frozen.said)
    assert frozen.terminate() == 0
    assert journal(registry, run) == ended
    (pipeline, attempts), _, (_, of_train), (_, of_evaluate) = ended
    assert pipeline.state is RunState.SUCCEEDED, pipeline.error
    for each in (attempts, of_train):
        assert [(a.number, a.cause) for a in each] == [(1, Cause.LOST), (2, None)]
    assert len(of_evaluate) == 1
    assert Counter(pipelines.executions()) == {"prepare": 1, "train": 2, "evaluate": 1}
    assert not [process for process in stopped if process.is_running()]


def test_a_frozen_worker_with_driver_and_step_changes_nothing_when_it_goes_on(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    pipelines.tell("wait", "train")
    frozen = start()
    run = pipelines.queue("post_train")
    pipelines.wait_for("train")
    driver = pipelines.process_of("driver")
    stopped = frozen.pause()
    start()
    wait_until(lambda: took_over(registry, pipelines, run, driver), 60, frozen.said)
    pipelines.let("wait", "train")
    pipelines.end(run)
    assert_nothing_stale_counts(registry, pipelines, frozen, stopped, run)


def test_a_driver_and_a_step_that_outlive_their_lease_are_refused(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    """Nobody ends them: their worker and their guards are stopped, and they are not."""
    pipelines.tell("wait", "train")
    frozen = start()
    run = pipelines.queue("post_train")
    pipelines.wait_for("train")
    driver, step = pipelines.process_of("driver"), pipelines.process_of("train")
    stopped = [psutil.Process(frozen.process.pid), driver.parent(), step.parent()]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    start()
    wait_until(lambda: took_over(registry, pipelines, run, driver), 60, frozen.said)
    assert driver.is_running()
    assert step.is_running()
    successor = pipelines.process_of("driver")
    successor.send_signal(signal.SIGSTOP)  # so that the stale one is the first to see that the step is done
    pipelines.let("wait", "train")
    for stale in (driver, step):  # the driver asks for its next step, the step stores what it has made
        wait_until(lambda stale=stale: stale.status() == psutil.STATUS_ZOMBIE, 30, str(stale))
        assert status_of(stale) == 1, stale
    assert len(registry.steps.of(run.id)) == 2
    successor.send_signal(signal.SIGCONT)
    pipelines.end(run)
    assert_nothing_stale_counts(registry, pipelines, frozen, stopped, run)
