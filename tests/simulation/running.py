"""Worlds in which workers carry out runs: they die and pause, and children outlive them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from registry.errors import DatabaseUnavailable, PodiumError, StoreUnavailable
from registry.resources import Resources
from registry.runs import NewOutput, RunRequest
from registry.values import Authority, Origin
from tests.common.content import write_dataset
from tests.simulation import oracle
from tests.simulation.actors import Main, registry_of
from tests.simulation.beginning import beginning
from tests.simulation.process import Process, current
from tests.simulation.world import FAIR, Broken, Faults, Kill, World
from trainers.binding import Outcome
from trainers.execution import Ended, Ending
from trainers.outcome import write_outcome
from trainers.worker import run_worker

#: The artifact that results become versions of, and the one that children publish to while they run.
RESULTS, ASIDE = "dog", "eel"
_ENDS = ("succeeded", "failed", "interrupted", "cancelled")


@dataclass
class Told:
    """What people and children were told."""

    queued: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    aside: list[tuple[str, int]] = field(default_factory=list)  # (run, attempt) whose write was taken


#: What a child does: itself, its run, attempt, origin and folder, and where what it prints goes.
Task = Callable[["Child", str, int, Origin, Path, Callable[[bytes], None]], Coroutine[Any, Any, None]]


class Children:
    """An executor whose tasks are processes of the world: a worker's death does not end them at once."""

    def __init__(self, worker: Process, task: Task) -> None:
        self._worker = worker
        self._task = task

    async def start(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        deadline: float,
        sink: Callable[[bytes], None],
        **_: object,  # a process's environment and its limits, of which these have none
    ) -> Child:
        run, lease, epoch = command[-4:-1]
        attempt = folder.name.removeprefix(f"{run}-")
        child = Child(self._worker.world, f"child {run}-{attempt}", deadline)
        origin = Origin(f"run:{run}", Authority(lease, int(epoch)))
        child.begin(self._task(child, run, int(attempt), origin, folder, sink))
        return child


class Child(Process):
    """A task's process. It ends itself when its lease was not confirmed in time, unless it is paused then."""

    def __init__(self, world: World, name: str, deadline: float) -> None:
        super().__init__(world, name)
        self._deadline = deadline
        self._ending = Ending.EXITED
        self._status = 0
        self._work: asyncio.Task[None] | None = None
        world.adopt(self)

    def begin(self, work: object) -> None:
        token = current.set(self)
        self._work = self.world.loop.create_task(work)  # type: ignore[arg-type]
        current.reset(token)

    async def step(self) -> None:
        self.heed_deadline()
        await super().step()

    def heed_deadline(self) -> None:
        """Do nothing more when the lease was not confirmed in time."""
        if self.world.now > self._deadline and self.alive:
            self._end(Ending.UNCONFIRMED)
        self.check()

    async def confirm(self, deadline: float) -> None:
        self._deadline = deadline

    async def stop(self, grace: float) -> None:
        self._end(Ending.STOPPED)

    def kill(self) -> None:
        self._end(Ending.EXITED)

    def _end(self, ending: Ending) -> None:
        if self.alive:
            self._ending, self._status = ending, -9
            super().kill()

    async def wait(self) -> Ended:
        assert self._work is not None
        await asyncio.wait((self._work, self.death), return_when=asyncio.FIRST_COMPLETED)
        if self.alive and self._work.exception() is not None:
            self._status = 1
        self.alive = False
        self._work.cancel()
        return Ended(self._ending, self._status)


async def _task(
    told: Told,
    child: Child,
    run: str,
    attempt: int,
    origin: Origin,
    folder: Path,
    sink: Callable[[bytes], None],
) -> None:
    """What the child does: some work, a write under its lease on the way, and a result."""
    registry = registry_of(child, origin.actor).acting(origin)
    sink(f"attempt {attempt}\n".encode())
    for part in (ASIDE, RESULTS):
        await asyncio.sleep(child.world.random.uniform(0, child.world.term))
        path = write_dataset(folder / part, {"made.txt": f"{run} {attempt} {part}".encode()})
        with suppress(DatabaseUnavailable, StoreUnavailable):
            if part == ASIDE:
                await child.interleaved(lambda path=path: registry.catalog.publish(ASIDE, path, "dataset"))
                told.aside.append((run, attempt))
                continue
            stored = await child.interleaved(lambda path=path: registry.catalog.store(path, "dataset"))
            output = NewOutput("result", stored.kind, stored.digest, metadata={"attempt": attempt})
            await child.step()
            write_outcome(folder, Outcome((output,)))
            return
    raise RuntimeError("the store could not be reached")


def worker(home: Path, task: Task) -> Main:
    """Takes runs, two at a time."""

    async def main(process: Process) -> None:
        def report(line: str) -> None:
            process.world.note(f"{process.name}: {line}")

        while True:
            with suppress(DatabaseUnavailable):
                registry = registry_of(process, f"user:{process.name}", home=home)
                await run_worker(
                    registry,
                    Resources(cpu=2, memory=2**30),
                    asyncio.Event(),
                    report,
                    grace=1.0,
                    executor=Children(process, task),
                )
            await asyncio.sleep(0.1)

    return main


def client(told: Told, count: int, *, cancels: bool) -> Main:
    """Asks for runs, and ends one of them now and then."""

    async def main(process: Process) -> None:
        registry, world = registry_of(process), process.world
        while len(told.queued) < count:
            request = RunRequest(
                task="sim",
                key=f"run-{len(told.queued)}",
                publish=RESULTS,
                retries=2,
                resources=Resources(cpu=1, memory=1),
            )
            with suppress(DatabaseUnavailable):
                run = await process.interleaved(lambda request=request: registry.runs.queue(request))
                told.queued.add(run.id)
            await asyncio.sleep(world.random.uniform(0, world.term / 2))
        if cancels:
            await asyncio.sleep(world.random.uniform(0, 2 * world.term))
            chosen = world.random.choice(sorted(told.queued))
            with suppress(PodiumError):
                cancelled = await process.interleaved(lambda: registry.runs.cancel(chosen))
                if cancelled.state == "cancelled":
                    told.cancelled.add(chosen)

    return main


def play(
    seed: int = 0,
    *,
    faults: Faults = FAIR,
    kill: Kill | None = None,
    runs: int = 3,
    workers: int = 2,
    cancels: bool = False,
) -> World:
    """Run one schedule to its quiet end and check it. Raises `world.Broken`."""
    world, told = World(beginning(), seed=seed, faults=faults, kill=kill), Told()

    async def main() -> None:
        world.start("client", client(told, runs, cancels=cancels))
        for number in range(workers):
            world.start(f"worker-{number}", worker(Path(home), partial(_task, told)))
        await world.until(lambda: world.ended(["client"]), "the client's end")
        await asyncio.sleep(2 * world.term)
        world.heal()
        await world.until(lambda: all_ended(world), "an end of each run", limit=300)

    with TemporaryDirectory() as home:
        world.run(main())
    check_runs(world, told)
    return world


# The oracle


def all_ended(world: World) -> bool:
    open_runs = world.connection.execute("SELECT COUNT(*) FROM run WHERE state IN ('queued', 'running')")
    return bool(open_runs.fetchone() == (0,))


def check_runs(world: World, told: Told) -> None:
    """Invariant 4: attempts follow each other, and only the one whose lease stands writes anything."""
    rows = world.connection.execute("SELECT id, state, attempts FROM run").fetchall()
    _require(world, {row[0] for row in rows} == told.queued, "runs that nobody was told of")
    for run, state, attempts in rows:
        _require(world, state in ("succeeded", "cancelled", "failed"), f"run {run} is {state}")
        _require(world, run not in told.cancelled or state == "cancelled", f"{run} was cancelled, is {state}")
        _check_attempts(world, run, state, attempts)
        _check_story(world, run)
        _check_result(world, run, state)
    for run, attempt in told.aside:
        _require(world, (run, attempt) in _aside(world), f"acknowledged and lost: {run} {attempt}")


def _check_attempts(world: World, run: str, state: str, attempts: int) -> None:
    rows = world.connection.execute(
        "SELECT number, epoch, outcome FROM attempt WHERE run = ? ORDER BY number", (run,)
    ).fetchall()
    _require(world, [row[0] for row in rows] == list(range(1, attempts + 1)), f"attempts of {run}: {rows}")
    epochs = [row[1] for row in rows]
    _require(world, epochs == sorted(set(epochs)), f"epochs of {run}: {epochs}")
    outcomes = Counter(row[2] for row in rows)
    _require(world, outcomes["succeeded"] == (state == "succeeded"), f"outcomes of {run}: {rows}")
    _require(world, None not in outcomes, f"an attempt of {run} that never ended: {rows}")


def _check_story(world: World, run: str) -> None:
    """Started and ended take turns; what an attempt wrote on the way lies between its own two."""
    running: int | None = None
    aside = {version: attempt for (of, attempt), version in _aside(world).items() if of == run}
    for fact in oracle.outbox(world):
        kind = fact.type.removeprefix("podium.run.")
        if fact.data.get("run") == run and kind == "started":
            _require(world, running is None, f"{run} started twice at once")
            running = int(str(fact.data["attempt"]))
        elif fact.data.get("run") == run and kind in _ENDS:
            running = None
        elif fact.type == "podium.version.published" and fact.data["artifact"] == ASIDE:
            attempt = aside.get(int(str(fact.data["version"])))
            _require(
                world,
                attempt is None or attempt == running,
                f"attempt {attempt} of {run} wrote while {running} was running",
            )
    _require(world, running is None, f"{run} never ended")


def _check_result(world: World, run: str, state: str) -> None:
    """One version of each run that succeeded, made by the attempt that did; none of the others."""
    made = world.connection.execute(
        "SELECT json_extract(value.metadata_json, '$.attempt') FROM version"
        " JOIN artifact ON artifact.id = artifact_id JOIN value ON value.id = version.value"
        " WHERE artifact.name = ? AND value.run = ?",
        (RESULTS, run),
    ).fetchall()
    won = world.connection.execute(
        "SELECT number FROM attempt WHERE run = ? AND outcome = 'succeeded'", (run,)
    ).fetchall()
    _require(world, made == won, f"{run} is {state}: attempts {won} succeeded, {made} are published")


def _aside(world: World) -> dict[tuple[str, int], int]:
    """(run, attempt) -> the version that it published on the way."""
    rows = world.connection.execute(
        "SELECT version.number, content_chunk.chunk FROM version JOIN artifact ON artifact.id = artifact_id"
        " JOIN content_chunk ON content_chunk.digest = version.digest WHERE artifact.name = ?",
        (ASIDE,),
    )
    texts = [(number, world.chunks[chunk].decode().split()) for number, chunk in rows]
    return {(run, int(attempt)): number for number, (run, attempt, _) in texts}


def _require(world: World, holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"{what}\n{world.story()}")
