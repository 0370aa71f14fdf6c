"""The driver of a pipeline: turns calls of tasks into steps, and gives their results back.

A step is a run of its own, which the journal has at its place in this one. Whatever an earlier attempt has
asked for is there when the pipeline asks again: what is done is given, what runs is joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from registry.crashpoints import reached
from registry.errors import InvalidInput, PodiumError
from registry.protocol import Registry
from registry.runs import ENDED, Run, RunRequest, RunState
from trainers.asking import Requests
from trainers.errors import NoWorker, PipelineDiverged, TaskTimeoutError
from trainers.outcome import describe
from trainers.parameters import to_plain
from trainers.patience import insist
from trainers.places import current_branch, follow_branches
from trainers.placing import Placing
from trainers.raising import failure
from trainers.results import revive
from trainers.stepping import enter, leave
from trainers.tasks import Task
from trainers.watching import Watch

T = TypeVar("T")


class Driver:
    """One execution of the pipeline of ``run``, in ``folder``, where its code lies in ``code``."""

    def __init__(self, registry: Registry, run: Run, folder: Path) -> None:
        self._registry = registry
        self._run = run
        self._fetched = folder / "steps"
        self._requests = Requests(registry, run, folder / "code")
        self._placing = Placing(registry, run.pool)
        self._known = {step.place: step for step in insist(lambda: registry.steps.of(run.id))}
        self._asked: set[str] = set()  # places of this execution
        self._waiting: dict[str, asyncio.Future[Run]] = {}
        self._watch = Watch(registry, self._tell, self._fail)
        self._database = ThreadPoolExecutor(1, "journal")  # the loop goes on while the journal is written
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    def drive(self, task: Task[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Execute the pipeline; what it returns."""
        context = copy_context()
        context.run(enter, self)
        runner = asyncio.Runner()
        try:
            self._loop = runner.get_loop()
            follow_branches(self._loop)
            return runner.run(task.function(**arguments), context=context)
        finally:
            # From here on tasks are cancelled because the pipeline ends; what becomes of their steps is
            # decided with the end of its run.
            self._closing = True
            runner.close()
            self._watch.close()
            self._database.shutdown()

    # Stepper

    def step(self, task: Task[..., Any], given: Mapping[str, Any]) -> Awaitable[Any]:
        place = f"={task.key}" if task.key is not None else current_branch().step(task.name)
        if place in self._asked:
            raise InvalidInput(f"Two steps have the key '{task.key}'.", remedy="Give each its own key.")
        self._asked.add(place)
        return self._inline(task, given, place) if task.inline else self._step(task, given, place)

    def note(self, name: str, value: Any) -> Any:
        place = current_branch().step(name)
        self._asked.add(place)
        known = self._known.get(place)
        if known is not None:
            return known.result
        request = RunRequest(name, parent=self._run.id, place=place)
        noted = insist(lambda: self._registry.steps.record(request, _now(), result=value))
        reached("step.recorded")
        return noted

    async def _step(self, task: Task[..., Any], given: Mapping[str, Any], place: str) -> Any:
        request = self._requests.make(task, given, place)
        run = await self._asked_for(request)
        if run.state not in ENDED:
            run = await self._end_of(run)
        return self._give(task, run)

    async def _asked_for(self, request: RunRequest) -> Run:
        """The step in the journal: there before, or queued now."""
        known = self._known.get(request.place)
        if known is None:
            run = await self._write(lambda: self._ask(request))
            reached("step.asked")
            return run
        if known.again:
            run = await self._write(lambda: self._registry.steps.again(known.id, request))
            reached("step.repeated")
            return run
        _check_same(known, request)
        return known

    def _ask(self, request: RunRequest) -> Run:
        if request.cache_key is None:
            self._placing.check(request)
            return self._registry.steps.ask(request)
        step = self._registry.steps.ask(request)  # what is in the cache, or is being made, needs no worker
        if step.state is RunState.QUEUED and step.waits_for is None:
            try:
                self._placing.check(request)
            except NoWorker:
                self._registry.runs.cancel(step.id)
                raise
        return step

    async def _write(self, act: Callable[[], T]) -> T:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._database, insist, act)

    async def _end_of(self, run: Run) -> Run:
        assert self._loop is not None
        arrival: asyncio.Future[Run] = self._loop.create_future()
        self._waiting[run.id] = arrival
        self._watch.add(run)
        self._database.submit(self._look)  # it may have ended before it was watched
        try:
            return await arrival
        except asyncio.CancelledError:
            if not self._closing:
                self._watch.remove(run.id)
                self._database.submit(self._cancel, run.id)
            raise
        finally:
            self._waiting.pop(run.id, None)

    def _look(self) -> None:
        insist(self._watch.look)

    def _cancel(self, run: str) -> None:
        insist(lambda: self._registry.runs.cancel(run))

    def _tell(self, run: Run) -> None:
        """A step has ended; said in another thread."""
        assert self._loop is not None
        if not self._closing:
            self._loop.call_soon_threadsafe(self._arrive, run)

    def _arrive(self, run: Run) -> None:
        arrival = self._waiting.get(run.id)
        if arrival is not None and not arrival.done():
            arrival.set_result(run)

    def _fail(self, error: PodiumError) -> None:
        """Nothing that waits will hear any more: this execution is another's now."""
        assert self._loop is not None
        for arrival in list(self._waiting.values()):
            self._loop.call_soon_threadsafe(_set_exception, arrival, error)

    def _give(self, task: Task[..., Any], run: Run) -> Any:
        if run.state is RunState.SUCCEEDED:
            return revive(run, task.annotation, self._registry, self._fetched)
        raise failure(run)

    # Steps in this process

    async def _inline(self, task: Task[..., Any], given: Mapping[str, Any], place: str) -> Any:
        request = self._requests.make(task, given, place)
        known = self._known.get(place)
        if known is not None and known.state in ENDED and not known.again:
            _check_same(known, request)
            return self._give(task, known)
        record, began = self._registry.steps.record, _now()
        try:
            result = await _in_time(task, given)
            plain = to_plain(result, task.annotation)
        except Exception as error:
            _, described = describe(error)
            insist(lambda: record(request, began, error=described))
            raise
        insist(lambda: record(request, began, result=plain))
        reached("step.recorded")
        return result


def _now() -> datetime:
    return datetime.now(UTC)


async def _in_time(task: Task[..., Any], given: Mapping[str, Any]) -> Any:
    try:
        async with asyncio.timeout(task.timeout) as limit:
            return await _plainly(task, given)
    except TimeoutError as error:
        if not limit.expired():
            raise  # the task's own
        raise TaskTimeoutError(
            f"It was ended after {task.timeout:.1f} s, which is as long as it may run.",
            remedy="Give the task more time, or less to do.",
            limit=task.timeout,
        ) from error


async def _plainly(task: Task[..., Any], given: Mapping[str, Any]) -> Any:
    """The task's function, with calls of other tasks in it being just calls."""

    left = enter(None)
    try:
        returned = task.function(**given)
        return await returned if isinstance(returned, Awaitable) else returned
    finally:
        leave(left)


def _set_exception(arrival: asyncio.Future[Run], error: PodiumError) -> None:
    if not arrival.done():
        arrival.set_exception(error)


def _check_same(known: Run, request: RunRequest) -> None:
    """Raise `PipelineDiverged` when a step was given something else before."""
    if known.signature == request.signature:
        return
    before = {**known.arguments, **{each.parameter: each.ref or each.value for each in known.inputs}}
    now = {**request.arguments, **request.inputs}
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    raise PipelineDiverged(
        f"The step {known.place} ({known.id}) was given other inputs before"
        f"{': ' + ', '.join(changed) if changed else ''}.",
        remedy="Let the pipeline ask for the same in the same order; give steps a key where it cannot; "
        "or rerun it from this step on.",
        place=known.place,
        changed=changed,
    )
