"""Worlds in which pipelines run: drivers and steps die and pause, people take over, recover and fork."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from registry.errors import DatabaseUnavailable, NotFound, RunRefused
from registry.resources import Resources
from registry.runs import Run, RunRequest, RunState
from registry.steps import kept
from registry.values import Origin
from tests.simulation.actors import Main, registry_of
from tests.simulation.beginning import beginning
from tests.simulation.journal import Told, check_pipelines
from tests.simulation.process import Process, current
from tests.simulation.running import Child, worker
from tests.simulation.storage import SharedRegistry
from tests.simulation.world import FAIR, Broken, Faults, Kill, World
from trainers import TaskEnvironment, gather_map, random
from trainers.binding import Outcome
from trainers.driving import Driver
from trainers.outcome import describe, write_failure, write_outcome
from trainers.patience import insist
from trainers.places import Branch, _branch
from trainers.stepping import enter

HERE = Path(__file__).parent
ARMS = 3
_FAILS = 0.06  # how likely a step is to fail while the world is not healed

env = TaskEnvironment("sim", resources=Resources(cpu=1, memory=1))


# The pipeline. A step returns which execution of it was the one that counts.


@env.task
def draw(x: int) -> str:
    raise AssertionError("its child does it")


@env.task(cache="auto")
def shared(x: int) -> str:
    raise AssertionError("its child does it")


@env.task(inline=True)
def small(x: int) -> str:
    driver = current.get()
    assert isinstance(driver, Driving)
    return f"{driver.name} {driver.world.random.random()}"


@env.task
async def inner(x: int) -> list[str]:
    give = _giving()
    return [give(f"draw {n}", await draw(n)) for n in range(2)]


@env.task
async def pipeline() -> list[Any]:
    """Eleven steps, some of them equal in all that they are given; `must_follow` knows their order."""
    give = _giving()

    async def arm(number: int) -> list[str]:
        own = give(f"arm {number}", await draw(7))
        return [own, give(f"arm {number} shared", await shared(1))]

    first = [give("first", await draw(0)), give("random", random()), give("small", await small(0))]
    common = give("shared", await shared(0))
    arms = await gather_map(arm, range(ARMS), concurrency=2)
    for failed in arms:
        if isinstance(failed, Exception):
            raise failed
    below = await inner(0)
    return [*first, common, *arms, *below, give("last", await draw(1))]


TASKS = {task.name: task for task in (draw, shared, inner, pipeline)}


def _giving() -> Callable[[str, Any], Any]:
    """What notes that the driver that runs here was given something."""
    driver = current.get()
    assert isinstance(driver, Driving)
    return partial(driver.told.give, driver.run)


class Driving(Child):
    """The process of a driver."""

    run = ""
    told: Told


def child(
    told: Told,
    process: Child,
    run_id: str,
    attempt: int,
    origin: Origin,
    folder: Path,
    sink: Callable[[bytes], None],
) -> Any:
    """What a child does: a step's work, or a pipeline, in the way of `trainers.child`."""
    return _carry_out(told, process, run_id, attempt, origin, folder)


async def _carry_out(
    told: Told, process: Child, run_id: str, attempt: int, origin: Origin, folder: Path
) -> None:
    base = registry_of(process, origin.actor)
    run: Run = await process.interleaved(lambda: insist(lambda: base.runs.get(run_id)))
    origin = Origin(f"run:{run.id}", origin.authority, run.causation, run.correlation)
    registry = base.acting(origin)
    try:
        name = run.task.rpartition(":")[2]
        if name in ("draw", "shared"):
            result = await _work(told, process, run, attempt)
        else:
            result = await _drive(told, process, registry, run, folder, name)
    except (Exception, asyncio.CancelledError) as error:
        process.check()
        cause, described = describe(error)
        write_failure(folder, cause, described)
        raise RuntimeError("failed") from error
    process.check()
    write_outcome(folder, Outcome(result=result))


async def _work(told: Told, process: Child, run: Run, attempt: int) -> str:
    world = process.world
    await process.step()
    process.heed_deadline()
    (state,) = world.connection.execute("SELECT state FROM run WHERE id = ?", (run.id,)).fetchone()
    if state == RunState.SUCCEEDED:
        raise_later(world, f"{process.name} executes a step that is finished")
    told.executions.append((run.id, attempt))
    await asyncio.sleep(world.random.uniform(0, world.term / 3))
    await process.step()
    if not world.is_fair and world.happens(_FAILS):
        raise ValueError("it was told to fail")
    return f"{run.id} {attempt}"


def raise_later(world: World, what: str) -> None:
    """Have the world end with this."""
    world.errors.append(Broken(f"{what}\n{world.story()}"))


class _Driver(Driver):
    """The real driver, in an event loop that goes on after it."""

    async def execute(self, name: str) -> Any:
        _branch.set(Branch())
        enter(self)
        self._loop = asyncio.get_running_loop()
        try:
            return await TASKS[name].function(**self._run.arguments)
        finally:
            self._closing = True
            self._watch.close()


async def _drive(
    told: Told, process: Child, registry: SharedRegistry, run: Run, folder: Path, name: str
) -> Any:
    process.__class__ = Driving  # what it is shows only now
    assert isinstance(process, Driving)
    process.run, process.told = run.id, told
    (folder / "code").symlink_to(HERE)
    driver = await process.interleaved(lambda: _Driver(registry, run, folder))
    return await process.world.loop.create_task(driver.execute(name))


# People


def client(told: Told, count: int) -> Main:
    """Asks for pipelines."""

    async def main(process: Process) -> None:
        registry, world = registry_of(process), process.world
        while len(told.roots) < count:
            request = RunRequest("pipeline", key=f"pipeline-{len(told.roots)}", resources=env.resources)
            with suppress(DatabaseUnavailable):
                run = await process.interleaved(lambda request=request: registry.runs.queue(request))
                told.roots[run.id] = None
            await asyncio.sleep(world.random.uniform(0, world.term / 2))

    return main


def person(told: Told, acts: int) -> Main:
    """Takes over, recovers, forks and cancels; in the end recovers until all is done."""
    left = [acts]

    async def main(process: Process) -> None:
        registry, world = registry_of(process), process.world
        while not (left[0] <= 0 and told.roots and all_have_ended(world)):
            await asyncio.sleep(world.random.uniform(0, world.term))
            with suppress(DatabaseUnavailable, RunRefused, NotFound):
                if left[0] > 0:
                    left[0] -= 1
                    await _interfere(process, registry, told)
                else:
                    await _recover_failed(process, registry, told)

    return main


async def _interfere(process: Process, registry: SharedRegistry, told: Told) -> None:
    world = process.world
    if not told.roots:
        return
    chosen = world.random.choice(list(told.roots))
    match world.random.choices(("take over", "recover", "fork", "cancel"), (3, 2, 3, 1))[0]:
        case "take over":
            await _recover(process, registry, told, chosen, take_over=True)
        case "recover":
            await _recover_failed(process, registry, told)
        case "fork":
            await process.interleaved(lambda: _fork(world, registry, told, chosen))
        case _:
            cancelled = await process.interleaved(lambda: registry.runs.cancel(chosen))
            told.cancelled.add(cancelled.id)
            world.note(f"{process.name} cancelled {chosen}")


async def _recover(
    process: Process, registry: SharedRegistry, told: Told, run: str, *, take_over: bool = False
) -> None:
    def act() -> None:
        for step in registry.steps.of(run):
            if step.state is RunState.SUCCEEDED:
                told.finished.setdefault(step.id, step.result)
        registry.runs.recover(run, take_over=take_over)
        process.world.note(f"{process.name} recovered {run}")

    await process.interleaved(act)


async def _recover_failed(process: Process, registry: SharedRegistry, told: Told) -> None:
    """All that has failed: a fork may be there though the answer to who asked for it was lost."""
    for state in (RunState.FAILED, RunState.INTERRUPTED):
        found = await process.interleaved(lambda state=state: registry.runs.list(state=state, limit=1000))
        for run in [each for each in reversed(found) if each.parent is None]:
            if run.error is not None and run.error.type == "PipelineDiverged":
                raise_later(process.world, f"{run.id} asks for other steps than before: {run.error.message}")
            await _recover(process, registry, told, run.id)


def _fork(world: World, registry: SharedRegistry, told: Told, run: str) -> None:
    steps = registry.steps.of(run)
    started = [step for step in steps if step.place is not None]
    if not started:
        return
    start = world.random.choice(started)
    request = RunRequest("pipeline", key=f"fork-{world.random.random()}", resources=env.resources)
    fork = registry.steps.fork(request, [step.id for step in kept(steps, start)])
    told.roots[fork.id] = run
    assert start.place is not None
    told.forked_at[fork.id] = start.place
    world.note(f"{run} was forked from {start.place} as {fork.id}")


def all_have_ended(world: World) -> bool:
    """Whether each pipeline has succeeded, or was cancelled."""
    left = world.connection.execute(
        "SELECT COUNT(*) FROM run WHERE parent IS NULL AND state NOT IN ('succeeded', 'cancelled')"
    )
    return bool(left.fetchone() == (0,))


def play(
    seed: int = 0,
    *,
    faults: Faults = FAIR,
    kill: Kill | None = None,
    pipelines: int = 2,
    workers: int = 2,
    acts: int = 0,
) -> World:
    """Run one schedule to its quiet end, in which no pipeline is left to do, and check it.

    Raises:
        world.Broken.
    """
    world, told = World(beginning(), seed=seed, faults=faults, kill=kill), Told()

    async def main() -> None:
        world.start("client", client(told, pipelines))
        for number in range(workers):
            world.start(f"worker-{number}", worker(Path(home), partial(child, told)))
        await world.until(lambda: world.ended(["client"]), "the client's end")
        world.start("person", person(told, acts))
        await asyncio.sleep((4 + acts) * world.term)
        world.heal()
        await world.until(lambda: world.ended(["person"]), "an end of each pipeline", limit=150)
        await world.until(lambda: _all_is_quiet(world), "an end of each lease", limit=100)

    with TemporaryDirectory() as home:
        world.run(main())
    check_pipelines(world, told)
    return world


def _all_is_quiet(world: World) -> bool:
    """Nobody holds a run, and none is left to be done."""
    open_runs = world.connection.execute("SELECT COUNT(*) FROM run WHERE state IN ('queued', 'running')")
    held = world.connection.execute(
        "SELECT COUNT(*) FROM lease WHERE name LIKE 'run/%' AND holder IS NOT NULL"
    )
    return open_runs.fetchone() == (0,) and held.fetchone() == (0,)
