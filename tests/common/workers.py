"""Worker processes for tests, and tasks for them whose executions can be counted from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from registry.conditions import Conditions
from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import ENDED, Run
from tests.common.registries import Place
from tests.common.waiting import wait_until
from trainers.submitting import locate, prepare

TASKS = '''
"""Tasks that leave a line outside for each execution, and wait for a file there before they go on."""

import os, sys, time
from pathlib import Path

from registry.artifacts import Dataset
from trainers.tasks import TaskEnvironment

env = TaskEnvironment("test")

def began(outside, name):
    with open(Path(outside) / "executions", "a") as lines:
        lines.write(f"{name} {os.getpid()}\\n")

def wait_for(path):
    while not path.exists():
        time.sleep(0.01)

@env.task
def make(outside: str, name: str = "x", gate: str = "") -> Dataset:
    began(outside, name)
    if gate:
        wait_for(Path(outside) / gate)
    Path("made").mkdir()
    Path("made/data.jsonl").write_text(f'{{"name": "{name}"}}\\n')
    (Path(outside) / f"made-{name}").touch()
    return Dataset("made")

@env.task
def stubborn(outside: str) -> int:
    """Saves at SIGTERM, and takes a moment for it."""
    import signal
    def save(*_):
        (Path(outside) / "saved").touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    began(outside, "stubborn")
    while True:
        time.sleep(0.05)

@env.task
def hungry(megabytes: int, seconds: float = 600) -> int:
    block = bytearray(os.urandom(1)) * (megabytes * 2**20)
    time.sleep(seconds)
    return len(block)

@env.task
def loud(megabytes: int) -> int:
    block = bytes(range(256)) * 4096
    sys.stdout.buffer.write(b"first line\\n")
    for _ in range(megabytes):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.write(b"last line\\n")
    sys.stdout.flush()
    return megabytes
'''

PODIUM = str(Path(sys.executable).with_name("podium"))


class PodiumProcess:
    """A real `podium` command that goes on until it is ended; what it says goes to a file in ``folder``."""

    def __init__(self, place: Place, folder: Path, *command: str, lease: float, **environment: str):
        self.log = folder / f"{command[0]}-{len(list(folder.glob(f'{command[0]}-*.log')))}.log"
        variables = {**os.environ, **place.environment, "PODIUM_LEASE_SECONDS": str(lease), **environment}
        with self.log.open("wb") as log:
            self.process = psutil.Popen(
                [PODIUM, *command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text()

    def descendants(self) -> list[psutil.Process]:
        """All processes that it and its children have started."""
        return list(self.process.children(recursive=True))

    def carrying(self) -> list[psutil.Process]:
        """The same without what later runs will be forked from, which stays as long as the worker."""
        return [each for each in self.descendants() if not self._keeps(each)]

    def _keeps(self, process: psutil.Process) -> bool:
        try:
            return process.ppid() == self.process.pid and "trainers.forkserver" in process.cmdline()
        except psutil.NoSuchProcess:
            return True

    def pause(self) -> list[psutil.Process]:
        """Stop it and all that it has started, as a frozen machine would; what was stopped."""
        stopped = [psutil.Process(self.process.pid), *self.descendants()]
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        return stopped

    def wait_for_end(self) -> int:
        return int(self.process.wait(60))

    def terminate(self) -> int:
        """SIGTERM; its exit status."""
        self.process.terminate()
        return self.wait_for_end()

    def end(self) -> None:
        """Kill it, if it is still there; its guards then kill the rest."""
        if self.process.poll() is None:
            left = self.descendants()
            self.process.kill()
            self.process.wait()
            _, stopped = psutil.wait_procs(left, timeout=20)
            for process in stopped:  # a guard that a test stopped cannot notice
                process.kill()


class WorkerProcess(PodiumProcess):
    """A real `podium worker`."""

    def __init__(self, place: Place, folder: Path, *, cpu: float = 2, lease: float = 2.0, **environment: str):
        limits = ("--cpu", str(cpu), "--memory", "4Gi", "--gpu", "0", "--grace", "5")
        super().__init__(place, folder, "worker", *limits, lease=lease, **environment)


class UpProcess(PodiumProcess):
    """A real `podium up` that carries events and nothing else."""

    def __init__(self, place: Place, folder: Path, *, lease: float = 2.0, **environment: str):
        without = [part for name in ("worker", "serving") for part in ("--without", name)]
        super().__init__(place, folder, "up", *without, lease=lease, **environment)


class Tasks:
    """`TASKS` as a file, and the folder outside that its executions write to."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self._registry = registry
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.file = folder / "code" / "tasks.py"
        self.file.parent.mkdir()
        self.file.write_text(TASKS)
        self._located: dict[str, Any] = {}

    def queue(
        self,
        task: str,
        *,
        cpu: float = 1,
        memory: str = "0",
        publish: str | None = None,
        conditions: Conditions | None = None,
        **changes: Any,
    ) -> Run:
        """Ask for a run; ``changes`` are arguments, ``retries`` among them."""
        if task not in self._located:
            self._located[task] = locate(self._registry, f"{self.file}:{task}")
        located = self._located[task]
        retries = changes.pop("retries", 0)
        if "outside" in located.task.parameters:
            changes["outside"] = str(self.outside)
        request = prepare(self._registry, located, changes, publish=publish)
        needs = Resources(cpu=cpu, memory=memory)
        conditions = conditions or request.conditions
        return self._registry.runs.queue(
            replace(request, retries=retries, resources=needs, conditions=conditions)
        )

    def executions(self, name: str = "") -> list[str]:
        """The names that executions have left, once for each."""
        path = self.outside / "executions"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line.split()[0] for line in lines if line.startswith(name)]

    def open(self, gate: str) -> None:
        """Let the tasks go on that wait at a gate."""
        (self.outside / gate).touch()

    def wait_for_executions(self, count: int, name: str = "") -> None:
        wait_until(lambda: len(self.executions(name)) >= count, 60, lambda: f"{count} of {self.executions()}")

    def wait_for_end(self, run: Run, timeout: float = 60.0) -> Run:
        """The run when it has ended."""
        return wait_for_end(self._registry, run.id, timeout)


def wait_for_end(registry: Registry, run: str, timeout: float = 60.0) -> Run:
    """The run when it has ended."""

    def ended() -> Run | None:
        found = registry.runs.get(run)
        return found if found.state in ENDED else None

    result = wait_until(ended, timeout, lambda: str(registry.runs.get(run)))
    assert result is not None
    return result
