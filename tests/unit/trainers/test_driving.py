"""The driver of a pipeline over the real journal, with a thread that does what is asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from registry import Registry
from registry.errors import InvalidInput
from registry.processes import Process
from registry.resources import Resources
from registry.runs import Cause, Claim, Run, RunError, RunRequest, RunState, Worker
from tests.common.registries import Place
from trainers import Task, TaskEnvironment, gather_map, now, random
from trainers.driving import Driver
from trainers.errors import NoWorker, PipelineDiverged, TaskCancelledError, TaskError, TaskTimeoutError

CLASS = {"class": "builtins:ValueError"}
ROOM = Resources(cpu=8, memory="8Gi")
env = TaskEnvironment("test")
HERE = Path(__file__).parent


@env.task
def double(x: int) -> int:
    return 2 * x


@env.task
def slow(x: int) -> int:
    return x


@env.task(inline=True)
def half(x: float) -> float:
    return x / 2


class Doer:
    """Does the steps that are asked for: all but those of the task `slow`, which wait until they are let."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.done: list[Run] = []
        self.fails: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            newest = self.registry.events.position().newest
            for claim in self.registry.runs.claim("doer", free=ROOM, total=ROOM):
                self._do(claim)
            self.registry.events.wait(newest, 0.1)

    def _do(self, claim: Claim) -> None:
        acting, x = self.registry.acting(claim.origin), claim.run.arguments["x"]
        if claim.run.task.endswith(":slow"):
            return
        if x in self.fails:
            acting.runs.end(claim.run.id, Cause.ERROR, RunError("ValueError", f"{x} is bad", details=CLASS))
        else:
            self.done.append(acting.runs.finish(claim.run.id, [], result=2 * x))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class Execution:
    """A pipeline's run, executed as often as the test wants."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry, self._folder = registry, folder
        (folder / "code").symlink_to(HERE)
        self.run = registry.runs.queue(RunRequest("pipeline", pool="drivers"))

    def of(self, pipeline: Any) -> Any:
        """One attempt. It is ended as lost afterwards, so that another can follow."""
        (claim,) = self.registry.runs.claim("driver", free=ROOM, total=ROOM, pool="drivers")
        acting = self.registry.acting(claim.origin)
        try:
            return Driver(acting, claim.run, self._folder).drive(Task(pipeline), {})
        finally:
            acting.runs.end(claim.run.id, Cause.LOST)

    def steps(self) -> dict[str, Run]:
        return {step.place or "": step for step in self.registry.steps.of(self.run.id)}


@pytest.fixture
def doer(sqlite_place: Place) -> Iterator[Doer]:
    made = Doer(sqlite_place.open())
    yield made
    made.close()


@pytest.fixture
def execution(sqlite_place: Place, doer: Doer, tmp_path: Path) -> Execution:
    return Execution(sqlite_place.open(), tmp_path)


def test_what_is_done_is_given_and_not_done_again(execution: Execution, doer: Doer) -> None:
    async def pipeline() -> list[int]:
        first = await double(1)
        return [first, *await gather_map(double, [first, 3], concurrency=1), await half(first)]

    assert execution.of(pipeline) == [2, 4, 6, 1.0]
    assert execution.of(pipeline) == [2, 4, 6, 1.0]
    assert len(doer.done) == 3
    assert list(execution.steps()) == ["/double#1", "map0[0]/double#1", "map0[1]/double#1", "/half#1"]


def test_a_step_with_other_inputs_than_before_is_not_guessed_at(execution: Execution) -> None:
    given = iter([1, 5])

    async def pipeline() -> int:
        return await double(next(given))

    assert execution.of(pipeline) == 2
    with pytest.raises(PipelineDiverged, match=r"/double#1.*: x") as diverged:
        execution.of(pipeline)
    assert "key" in diverged.value.remedy


def test_a_step_with_a_key_is_found_wherever_it_is_asked_for(execution: Execution, doer: Doer) -> None:
    order = iter([[1, 2, 3], [3, 1, 2]])

    async def pipeline() -> dict[int, int]:
        return {x: await double.override(key=f"x{x}")(x) for x in next(order)}

    assert execution.of(pipeline) == execution.of(pipeline) == {1: 2, 2: 4, 3: 6}
    assert len(doer.done) == 3


def test_one_key_is_for_one_step(execution: Execution) -> None:
    async def pipeline() -> None:
        await double.override(key="a")(1)
        await double.override(key="a")(2)

    with pytest.raises(InvalidInput, match="'a'"):
        execution.of(pipeline)


def test_a_failed_step_raises_its_own_error_and_again_when_it_is_looked_at_again(
    execution: Execution, doer: Doer
) -> None:
    doer.fails = {1}

    async def pipeline() -> str:
        try:
            await double(1)
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    assert execution.of(pipeline) == execution.of(pipeline) == "ValueError: 1 is bad"
    assert execution.steps()["/double#1"].attempts == 1


def test_partial_failures_are_kept_with_their_places(execution: Execution, doer: Doer) -> None:
    doer.fails = {2}

    async def pipeline() -> list[Any]:
        return await gather_map(double, [1, 2, 3])

    first, second, third = execution.of(pipeline)
    assert (first, third) == (2, 6)
    assert isinstance(second, TaskError)


def test_what_a_pipeline_cancels_is_cancelled_in_the_journal_and_asked_for_again(
    execution: Execution,
) -> None:
    async def pipeline() -> str:
        try:
            async with asyncio.timeout(0.2):
                await slow(1)
        except TimeoutError:
            return "too slow"
        return "done"

    assert execution.of(pipeline) == "too slow"
    assert execution.steps()["/slow#1"].state is RunState.CANCELLED
    assert execution.of(pipeline) == "too slow"


def test_when_a_pipeline_fails_its_steps_are_left_to_the_end_of_its_run(execution: Execution) -> None:
    async def fails() -> None:
        raise RuntimeError("no")

    async def pipeline() -> None:
        await asyncio.gather(slow(1), fails())

    with pytest.raises(RuntimeError):
        execution.of(pipeline)
    steps = execution.steps()
    assert not steps or steps["/slow#1"].state in (RunState.QUEUED, RunState.RUNNING)


def test_arms_that_are_left_when_one_fails_are_cancelled_in_the_journal(
    execution: Execution, doer: Doer
) -> None:
    doer.fails = {7}

    async def arm(x: int) -> int:
        return await (double(x) if x else slow(x))

    async def pipeline() -> None:
        with pytest.raises(ValueError, match="7 is bad"):
            await gather_map(arm, [0, 7], cancel_on_error=True)

    execution.of(pipeline)
    states = {place: step.state for place, step in execution.steps().items()}
    assert states == {"map0[0]/slow#1": RunState.CANCELLED, "map0[1]/double#1": RunState.FAILED}


def test_a_step_that_a_person_cancels_is_an_error_of_its_own(execution: Execution) -> None:
    async def pipeline() -> None:
        asyncio.get_running_loop().call_later(0.1, cancel)
        await slow(1)

    def cancel() -> None:
        for step in execution.steps().values():
            execution.registry.runs.cancel(step.id)

    with pytest.raises(TaskCancelledError):
        execution.of(pipeline)


def test_time_is_what_it_was(execution: Execution) -> None:
    async def pipeline() -> list[Any]:
        return [now(), random(), random()]

    assert execution.of(pipeline) == execution.of(pipeline)
    assert len(execution.steps()) == 3


def test_a_call_that_does_not_fit_is_an_error_before_anything_is_asked_for(execution: Execution) -> None:
    async def pipeline() -> None:
        with pytest.raises(InvalidInput, match="double"):
            await double(1, 2)
        with pytest.raises(InvalidInput, match="cannot be"):
            await double("many")
        with pytest.raises(InvalidInput, match="resource"):
            double.override(resource=1)

    execution.of(pipeline)
    assert execution.steps() == {}


def test_outside_of_a_pipeline_a_task_is_just_its_function() -> None:
    assert (double(2), half(3)) == (4, 1.5)
    assert random() != random()


@env.task(inline=True, timeout=0.05)
async def endless() -> None:
    await asyncio.sleep(600)


def test_a_step_in_the_drivers_process_ends_when_its_time_is_over(execution: Execution) -> None:
    async def pipeline() -> float:
        with pytest.raises(TaskTimeoutError) as late:
            await endless()
        return float(late.value.details["limit"])

    assert execution.of(pipeline) == 0.05
    assert execution.steps()["/endless#1"].state is RunState.FAILED


@env.task(cache="auto", resources=Resources(gpu="H200:1"))
def cached(x: int) -> int:
    return x


def test_what_no_worker_can_do_is_refused_at_once_also_where_it_might_be_in_the_cache(
    execution: Execution,
) -> None:
    now = datetime.now(UTC)
    worker = Worker("w", "default", ROOM, "host", Process.current().to_text(), now, now)
    execution.registry.workers.register(worker)

    async def pipeline() -> str:
        with pytest.raises(NoWorker) as refused:
            await cached(1)
        return refused.value.message

    assert "gpu H200:1" in execution.of(pipeline)
    assert execution.steps()["/cached#1"].state is RunState.CANCELLED
