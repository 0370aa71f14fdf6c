"""A place where pipelines of twelve steps run while everything that they need is killed, one after the other.

Two workers and a `podium up` that relays, over SQLite with the embedded event server (`Embedded`) or over
PostgreSQL and NATS that are servers of their own (`Servers`). What ran is counted in a file outside.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import psutil

from registry.protocol import Registry
from registry.runs import Run, RunState
from registry.settings import Settings
from registry.values import Event
from tests.common.postgres import PostgresServer
from tests.common.registries import Place
from tests.common.services import NatsServer
from tests.common.waiting import wait_until
from tests.common.workers import UpProcess, WorkerProcess
from trainers.execution import MARK
from trainers.patience import insist
from trainers.submitting import locate, prepare
from triggers.bus import Stream
from triggers.connection import Connection, Role, find_address
from triggers.jetstream import JetStreamBus

CODE = """
import os, time
from pathlib import Path
from registry import Dataset
from trainers import Resources, TaskEnvironment, gather_map

env = TaskEnvironment("test", resources=Resources(cpu=1))

def say(outside, name):
    with open(Path(outside) / "executions", "a") as lines:
        lines.write(f"{name} {os.getpid()} {time.time()}\\n")

@env.task(retries=3)
def source(outside: str, run: str) -> Dataset:
    say(outside, f"{run}/source")
    Path("made").mkdir()
    Path("made/number.txt").write_text("1")
    return Dataset("made")

@env.task(retries=3)
def add(data: Dataset, x: int, outside: str, run: str) -> int:
    say(outside, f"{run}/add-{x}")
    time.sleep(0.1)
    return int((data / "number.txt").read_text()) + x

@env.task(retries=3)
def total(numbers: list[int], outside: str, run: str) -> int:
    say(outside, f"{run}/total")
    return sum(numbers)

@env.task(retries=3)
async def pipeline(outside: str, run: str) -> int:
    say(outside, f"{run}/driver")
    data = await source(outside, run)
    first = await gather_map(lambda x: add(data, x, outside, run), range(5), concurrency=3)
    second = [await add(data, number, outside, run) for number in (10, 11, 12, 13, 14)]
    return await total([*first, *second], outside, run)
"""
RIGHT = sum(x + 1 for x in [*range(5), *range(10, 15)])
STEPS = 12
LEASE = 4.0  # seconds

#: How often each is chosen to be killed, in proportion.
_CHANCES = {"task": 12, "helper": 2, "worker": 3, "relay": 2, "events": 2, "database": 3}


class Scene:
    """The processes, the pipelines that they carry out, and what these have left outside."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place, self._folder = place, folder
        self.registry: Registry = place.open()
        self._outside = folder / "outside"
        self._outside.mkdir()
        (folder / "code").mkdir()
        (folder / "code" / "pipe.py").write_text(CODE)
        self._located = locate(self.registry, f"{folder / 'code' / 'pipe.py'}:pipeline")
        self.up = self._up()
        self.workers = [self._worker() for _ in range(2)]
        self.runs: list[Run] = []
        self.killed: list[str] = []

    def _up(self) -> UpProcess:
        return UpProcess(self.place, self._folder, lease=LEASE, **self.environment)

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self.place, self._folder, cpu=2, lease=LEASE, **self.environment)

    @property
    def environment(self) -> Mapping[str, str]:
        """What podium's processes have beside the place's own."""
        return {}

    @property
    def settings(self) -> Settings:
        return self.place.settings

    # Pipelines

    def queue(self) -> None:
        given = {"outside": str(self._outside), "run": str(len(self.runs))}
        request = prepare(self.registry, self._located, given)
        self.runs.append(insist(lambda: self.registry.runs.queue(request)))

    def living(self) -> list[Run]:
        """Those that have not ended."""
        self._supervise()
        found = [insist(lambda run=run: self.registry.runs.get(run.id)) for run in self.runs]
        return [run for run in found if run.ended_at is None]

    def lines(self) -> list[tuple[str, int, float]]:
        """What executions have left: whose, in which process, when it began."""
        path = self._outside / "executions"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(name, int(pid), float(at)) for name, pid, at in words]

    def _supervise(self) -> None:
        """Start again what has ended by itself: without a database, nothing of podium's starts."""
        if self.up.process.poll() is not None:
            self.up = self._up()
        for number, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                self.workers[number] = self._worker()

    # Kills

    def kill(self, chance: random.Random) -> None:
        """Kill something that lives."""
        acts: dict[str, Callable[[random.Random], bool]] = {
            "task": self._kill_task,
            "helper": self._kill_helper,
            "worker": self._kill_worker,
            "relay": self._kill_relay,
            "events": self.kill_events,
            "database": self.kill_database,
        }
        while True:
            (what,) = chance.choices(list(_CHANCES), list(_CHANCES.values()))
            if acts[what](chance):
                self.killed.append(what)
                return
            time.sleep(0.05)

    def _below_workers(self) -> list[psutil.Process]:
        found = []
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                found += worker.descendants()
        return found

    def _kill_task(self, chance: random.Random) -> bool:
        """The process of a driver or a step."""
        here = {child.pid for child in self._below_workers()}
        there = [pid for _, pid, _ in self.lines()[-20:] if pid in here]
        return bool(there) and _kill(psutil.Process, chance.choice(there))

    def _kill_helper(self, chance: random.Random) -> bool:
        """Any process that a worker has: a guard, a fork server, a task."""
        there = self._below_workers()
        return bool(there) and _kill(psutil.Process, chance.choice(there).pid)

    def _kill_worker(self, chance: random.Random) -> bool:
        victim = chance.randrange(len(self.workers))
        self.workers[victim].process.kill()
        self.workers[victim].process.wait()
        self.workers[victim] = self._worker()
        return True

    def _kill_relay(self, chance: random.Random) -> bool:
        self.up.process.kill()
        self.up.process.wait()
        self.up = self._up()
        return True

    def kill_events(self, chance: random.Random) -> bool:
        raise NotImplementedError

    def kill_database(self, chance: random.Random) -> bool:
        raise NotImplementedError

    # The end

    def what_went_wrong(self) -> str:
        said = [process.said()[-3000:] for process in (self.up, *self.workers)]
        return "\n".join([f"killed: {self.killed}", *said])

    def check(self) -> None:
        """All that must be true when the pipelines have ended."""
        for number, run in enumerate(self.runs):
            found = self.registry.runs.get(run.id)
            assert (found.state, found.result) == (RunState.SUCCEEDED, RIGHT), (found, self.killed)
            self._check_executions(number, found)
        held = self.registry.leases.held
        wait_until(lambda: not held("run/"), 30, lambda: f"leases are left: {held('run/')}")
        wait_until(lambda: not self._left(), 30, lambda: f"left: {self._left()}\n{self.what_went_wrong()}")
        self._check_events()

    def _check_executions(self, number: int, run: Run) -> None:
        """No step began again after it had been finished, and none more often than the journal says."""
        began: dict[str, list[float]] = {}
        for name, _, at in self.lines():
            began.setdefault(name, []).append(at)
        steps = self.registry.steps.of(run.id)
        assert len(steps) == STEPS == len({_name(step) for step in steps})
        for step in steps:
            times = began[f"{number}/{_name(step)}"]
            assert step.ended_at is not None
            assert max(times) <= step.ended_at.timestamp(), (step, self.killed)
            assert len(times) <= step.attempts, (step, self.killed)

    def _left(self) -> list[list[str]]:
        """The processes of executions here that live."""
        return [process.cmdline() for process in psutil.process_iter() if self._is_execution(process)]

    def _is_execution(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            environment = process.environ()
            ours = environment.get("PODIUM_HOME") == str(self.settings.home)
            return ours and MARK in environment and process.status() != psutil.STATUS_ZOMBIE
        return False

    def _check_events(self) -> None:
        """The stream has what the outbox has, each event once and in its order."""

        def relayed() -> bool:
            position = self.registry.events.position()
            return position.relayed == position.newest

        wait_until(relayed, 60, self.what_went_wrong)
        outbox = [(each.sequence, each.id) for each in self.registry.events.after(0, limit=100_000)]
        assert [(each.sequence, each.id) for each in asyncio.run(self._in_stream())] == outbox

    async def _in_stream(self) -> list[Event]:
        position = self.registry.events.position()
        bus = JetStreamBus(Connection(lambda: find_address(self.settings, Role.READER)))
        try:
            stream = Stream(position.database_id, position.incarnation)
            reader = await bus.reader(stream, f"look-{os.urandom(4).hex()}", after=0)
            events: list[Event] = []
            while came := await reader.fetch(1000, 1.0):
                events += came
            await reader.close()
        finally:
            await bus.close()
        return events

    def close(self) -> None:
        for process in (*self.workers, self.up):
            process.end()


class Embedded(Scene):
    """Over SQLite, with the event server that `podium up` brings."""

    def kill_events(self, chance: random.Random) -> bool:
        with suppress(psutil.NoSuchProcess):
            servers = [child for child in self.up.descendants() if "nats-server" in child.name()]
            return bool(servers) and _kill(psutil.Process, servers[0].pid)
        return False

    def kill_database(self, chance: random.Random) -> bool:
        """Somebody else holds its write lock, perhaps for longer than a lease's term."""
        path = self.settings.home / "podium.db"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(chance.choice((0.3, 1.0, 1.5 * LEASE)))
            connection.execute("ROLLBACK")
        return True


class Servers(Scene):
    """Over a PostgreSQL and a NATS that are this test's own."""

    def __init__(self, place: Place, folder: Path, postgres: PostgresServer, nats: NatsServer) -> None:
        self._postgres, self._nats = postgres, nats
        super().__init__(place, folder)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PODIUM_NATS": self._nats.url}

    @property
    def settings(self) -> Settings:
        return self.place.settings.model_copy(
            update={"nats": Settings(home=self.place.settings.home, nats=self._nats.url).nats}
        )

    def kill_events(self, chance: random.Random) -> bool:
        self._nats.kill()
        time.sleep(chance.uniform(0, 1))
        self._nats.start()
        return True

    def kill_database(self, chance: random.Random) -> bool:
        """All connections, or the server for a while, perhaps for longer than a lease's term."""
        match chance.choice(("connections", "stop", "kill")):
            case "connections":
                self._postgres.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND backend_type = 'client backend'"
                )
                return True
            case "stop":
                self._postgres.stop()
            case _:
                self._postgres.kill()
        time.sleep(chance.choice((0.1, 1.0, 1.5 * LEASE)))
        self._postgres.start()
        return True


def _kill(find: Callable[[int], psutil.Process], pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        find(pid).kill()
        return True
    return False


def _name(step: Run) -> str:
    short = step.task.rpartition(":")[2]
    return f"{short}-{step.arguments['x']}" if short == "add" else short
