"""`podium run`, `runs` and `worker` as people and scripts use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from registry import Registry
from registry.runs import Cause, RunState
from tests.common.registries import Maker, Place
from tests.common.waiting import wait_until
from tests.common.workers import PODIUM, Tasks, WorkerProcess

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

FILE = """
import os

from registry import Dataset
from trainers import Resources, TaskEnvironment

env = TaskEnvironment("cpu", env={"MODE": "fast"})
big = TaskEnvironment("big", resources=Resources(gpu="H999:8"))

@env.task
def count(data: Dataset, times: int = 1) -> int:
    lines = (data / "examples.jsonl").read_text().splitlines()
    print("counting")
    return len(lines) * times

@env.task
def fail() -> int:
    raise ValueError("the data is empty")

@env.task
def leave() -> int:
    raise SystemExit(0)

@env.task
def mode() -> str:
    return os.environ["MODE"]

@big.task
def huge() -> str:
    return "done"
"""


class Podium:
    """The command, in the environment of a place."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._environment = {**os.environ, **place.environment, "PODIUM_LEASE_SECONDS": "2"}
        self.file = folder / "jobs.py"
        self.file.write_text(FILE)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command, to be looked at while it runs."""
        process = subprocess.Popen(
            [PODIUM, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str, status: int = 0) -> Any:
        """Run a command with ``--json`` and return what it printed."""
        process = self.start(*arguments, "--json")
        out, err = process.communicate(timeout=100)
        assert process.returncode == status, out + err
        assert "Traceback" not in err
        return json.loads(out)


@pytest.fixture
def podium(place: Place, tmp_path: Path) -> Iterator[Podium]:
    command = Podium(place, tmp_path)
    yield command
    for process in command.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def worker(place: Place, tmp_path: Path) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(place, tmp_path)
    wait_until(lambda: "ready" in worker.said(), 60, worker.said)
    yield worker
    worker.end()


def test_without_a_worker_a_run_is_carried_out_here(podium: Podium, make: Maker) -> None:
    make.dataset("tickets")
    said = podium("run", f"{podium.file}:count", "--data", "tickets:v1", "--times", "3")
    assert (said["state"], said["result"], said["inputs"]) == ("succeeded", 3, {"data": "tickets:v1"})
    assert podium("runs", "logs", said["run"])["log"] == "counting\n"


def test_a_person_sees_what_is_printed_and_where_it_runs(podium: Podium, make: Maker) -> None:
    make.dataset("tickets")
    out, err = podium.start("run", f"{podium.file}:count", "--data", "tickets").communicate(timeout=100)
    assert "counting" in out
    assert "returned 1" in out
    assert "private worker" in err


def test_a_run_that_fails_is_an_error_with_its_reason(podium: Podium) -> None:
    said = podium("run", f"{podium.file}:fail", status=1)
    assert said["error"] == "run_failed"
    assert "ValueError: the data is empty" in said["message"]
    shown = podium("runs", "show", said["details"]["run"])
    assert shown["error"]["type"] == "ValueError"
    assert "jobs.py" in shown["error"]["traceback"]
    assert "trainers/child.py" not in shown["error"]["traceback"]


def test_a_recipe_that_was_given_what_is_not_there_says_so_without_its_code(
    podium: Podium, registry: Registry
) -> None:
    said = podium("run", "prefetch", "--source", "package:no-such-package", status=2)
    assert said["error"] == "invalid_run"
    assert "no-such-package" in said["message"]
    assert "OWNER/NAME" in said["remedy"]
    log = b"".join(part.data for part in registry.runs.log(said["run"]))
    assert b"NotFound" in log
    assert b"Traceback" not in log


def test_a_task_that_leaves_by_exit_has_failed(podium: Podium) -> None:
    assert "SystemExit" in podium("run", f"{podium.file}:leave", status=1)["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["{file}:nothing"],
        ["{file}:count"],
        ["{file}:count", "--data", "nothing:v1"],
        ["{file}:count", "--data", "tickets:v1", "--times", "x"],
        ["{file}:count", "--data", "tickets:v1", "loose"],
    ],
)
def test_bad_input_is_refused_and_nothing_is_queued(
    podium: Podium, registry: Registry, make: Maker, arguments: list[str]
) -> None:
    make.dataset("tickets")
    said = podium("run", *(a.format(file=podium.file) for a in arguments), status=2)
    assert said["message"]
    assert said["remedy"]
    assert registry.runs.list() == []


def test_what_this_machine_lacks_is_a_warning_or_with_strict_an_error(podium: Podium) -> None:
    assert podium("run", f"{podium.file}:huge")["result"] == "done"
    assert "H999" in podium("run", f"{podium.file}:huge", "--strict", status=3)["message"]


def test_a_worker_that_is_up_takes_the_run(
    podium: Podium, registry: Registry, make: Maker, worker: WorkerProcess
) -> None:
    make.dataset("tickets")
    said = podium("run", f"{podium.file}:count", "--data", "tickets", "--detach")
    assert said["state"] == "queued"
    wait_until(lambda: registry.runs.get(said["run"]).state is RunState.SUCCEEDED, 60, worker.said)
    assert f"run {said['run']}: succeeded" in worker.said()
    assert podium("runs", "list")[0]["result"] == 1


def test_what_no_worker_that_is_up_can_do_is_not_left_to_them(
    podium: Podium, registry: Registry, worker: WorkerProcess
) -> None:
    wait_until(registry.workers.all, 60, worker.said)
    assert "gpu H999:8" in podium("run", f"{podium.file}:huge", "--detach", status=3)["message"]
    assert registry.runs.list() == []


def test_a_task_finds_its_variables(podium: Podium) -> None:
    assert podium("run", f"{podium.file}:mode")["result"] == "fast"


def test_a_run_that_is_asked_for_here_is_left_alone_by_workers(
    podium: Podium, registry: Registry, make: Maker, worker: WorkerProcess
) -> None:
    make.dataset("tickets")
    said = podium("run", f"{podium.file}:count", "--data", "tickets", "--local")
    assert said["run"] not in worker.said()


def test_an_interrupted_private_run_waits_and_can_be_recovered(
    podium: Podium, registry: Registry, place: Place, tmp_path: Path
) -> None:
    tasks = Tasks(registry, tmp_path)
    following = podium.start("run", f"{tasks.file}:make", "--outside", str(tasks.outside), "--gate", "go")
    tasks.wait_for_executions(1)
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=60)
    assert following.returncode == 130
    (run,) = registry.runs.list()
    assert run.state is RunState.INTERRUPTED
    assert f"podium runs recover {run.id}" in err
    tasks.open("go")
    podium("runs", "recover", run.id)
    worker = WorkerProcess(place, tmp_path)
    try:
        assert tasks.wait_for_end(run).state is RunState.SUCCEEDED
    finally:
        worker.end()
    assert len(tasks.executions()) == 2


def test_the_run_of_a_private_worker_that_was_killed_is_taken_up_by_another(
    podium: Podium, registry: Registry, place: Place, tmp_path: Path
) -> None:
    tasks = Tasks(registry, tmp_path)
    private = podium.start(
        "run", f"{tasks.file}:make", "--local", "--outside", str(tasks.outside), "--gate", "go"
    )
    tasks.wait_for_executions(1)
    left = psutil.Process(private.pid).children(recursive=True)
    private.kill()
    psutil.wait_procs(left, timeout=20)
    tasks.open("go")
    worker = WorkerProcess(place, tmp_path)
    try:
        (run,) = registry.runs.list()
        assert tasks.wait_for_end(run).state is RunState.SUCCEEDED
    finally:
        worker.end()
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.LOST, None]


def test_cancel_ends_a_run_that_is_followed(podium: Podium, registry: Registry, tmp_path: Path) -> None:
    tasks = Tasks(registry, tmp_path)
    following = podium.start(
        "run", f"{tasks.file}:make", "--outside", str(tasks.outside), "--gate", "never", "--json"
    )
    tasks.wait_for_executions(1)
    podium("runs", "cancel", registry.runs.list()[0].id)
    out, _ = following.communicate(timeout=60)
    assert following.returncode == 1
    assert "was cancelled" in json.loads(out)["message"]
