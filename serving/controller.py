"""One deployment's controller: look, plan, act, until nothing is left to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from registry.deployments import BASE, Loaded, ReplicaStatus, Rollout, RouteTable
from registry.protocol import Registry
from serving.conditions import conditions
from serving.desiring import Declared, resolve_desired
from serving.engine import Engine, Observation, Phase
from serving.execution import DYING_SECONDS, Executor
from serving.front import Front, FrontView
from serving.memory import Memory
from serving.metrics import Sight, SwapMeter
from serving.planning import plan
from serving.recording import Recorder
from serving.room import Room
from serving.staging import Staging
from serving.state import (
    Apply,
    Begin,
    CloseFront,
    Desired,
    Drain,
    DropRoute,
    Fail,
    Finish,
    Flip,
    Forget,
    Load,
    Observed,
    Plan,
    Probe,
    Route,
    Setup,
    Start,
    Step,
    Stop,
    Switch,
    Unload,
)
from serving.telling import describe, summary

__all__ = ["Controller"]

#: Told of each step before it is taken, and of each plan that waits.
Report = Callable[[str, str], None]

#: How much memory is free, and how much a process of a setup would take.
Measure = Callable[[Setup], Room]

RETRY_SECONDS = 0.2  # after a step that failed; longer waits are on the step's account

OnReplica = Apply | Drain | Load | Probe | Start | Stop | Unload
_ON_REPLICAS = (Apply, Drain, Load, Probe, Start, Stop, Unload)
_SLOW = (Load, Probe, Stop)
_ON_RECORDS = (Begin, DropRoute, Fail, Finish, Flip, Forget, Switch)


@dataclass(frozen=True, slots=True)
class _Records:
    """What the registry says now."""

    desired: Desired
    table: RouteTable
    open: Mapping[str, Rollout]
    latest: Mapping[str, Rollout]
    blocked: Mapping[tuple[str, str], str]
    incarnation: int


class Controller:
    """Keeps one deployment true, with the authority of its registry's origin."""

    def __init__(
        self,
        declared: Declared,
        registry: Registry,
        engines: Mapping[int, Engine],
        staging: Staging,
        *,
        epoch: int,
        front: Front | None = None,
        measure: Measure = lambda setup: Room(),
        report: Report = lambda deployment, line: None,
        clock: Callable[[], float] = time.time,
        dying_seconds: float = DYING_SECONDS,
    ) -> None:
        self.declared = declared
        self._registry = registry
        self._engines = engines
        self._staging = staging
        self._epoch = epoch
        self._report = report
        self._clock = clock
        self._memory = Memory()
        self._meter = SwapMeter(declared.deployment.name)
        self._recorder = Recorder(registry, declared.deployment.name, clock)
        self.sight = Sight()
        self._executor = Executor(
            declared.deployment.name,
            registry,
            engines,
            staging,
            self._memory,
            engine=declared.deployment.engine,
            front=front,
            clock=clock,
            meter=self._meter,
            dying_seconds=dying_seconds,
        )
        self._front = front
        self._measure = measure
        self._view: FrontView | None = None
        self._replicas: dict[int, Observation] = {}
        self._said = ""

    async def settle(self) -> Plan:
        """Take all steps that can be taken now; the plan that is left has none.

        Raises:
            StaleAuthority: another controller leads.
            DatabaseUnavailable: the registry cannot be reached.
        """
        records, _ = await asyncio.gather(asyncio.to_thread(self._read), self._look())
        is_fresh = True
        while True:
            observed = self._observed(records)
            current = plan(records.desired, observed, self._clock())
            await asyncio.to_thread(self._record, records.desired, observed, current)
            if not current.steps:
                self._say("; ".join([*current.waiting, *current.needed]) or summary(observed))
                return current
            if not is_fresh and any(isinstance(step, Flip | Switch) for step in current.steps):
                # Loading takes a while, and somebody may have paused it or gone back meanwhile.
                records, is_fresh = await asyncio.to_thread(self._read), True
                continue
            if not await self._take_all(current.steps, observed):
                return replace(current, wake_at=self._clock() + RETRY_SECONDS)
            is_fresh = any(isinstance(step, _ON_RECORDS) for step in current.steps)
            if is_fresh:
                records = await asyncio.to_thread(self._read)

    async def _take_all(self, steps: Sequence[Step], observed: Observed) -> bool:
        """Take steps in order, up to the first that fails; several replicas are seen to at once."""
        for batch in _batches(steps):
            # All of them come to their end, also where one fails: nothing may go on unseen.
            ended = await asyncio.gather(*(self._take(s, observed) for s in batch), return_exceptions=True)
            for each in ended:
                if isinstance(each, BaseException):
                    raise each
            if not all(ended):
                return False
        return True

    async def _take(self, step: Step, observed: Observed) -> bool:
        self._report(self.declared.deployment.name, describe(step))
        went_well = await self._executor.take(step, observed)
        if isinstance(step, _ON_REPLICAS):
            await self._see(step, went_well)
        elif isinstance(step, Route | CloseFront):
            await self._look()
        return went_well

    async def _see(self, step: OnReplica, went_well: bool) -> None:
        """Bring the view of a replica up to what a step did there: by its answer where that says all."""
        seen = self._replicas[step.replica]
        match step:
            case Load() if went_well:
                path = str(self._staging.path(step.version.digest))
                self._replicas[step.replica] = replace(seen, models={**seen.models, step.version.ref: path})
            case Apply() if went_well:
                self._replicas[step.replica] = replace(seen, map=step.routes)
            case Probe() if went_well:
                pass
            case Start():
                self._memory.started(step.replica)
                await self._look(step.replica)
            case _:
                await self._look(step.replica)

    async def _look(self, index: int | None = None) -> None:
        indexes = list(self._engines) if index is None else [index]
        if index is None and self._front is not None:
            # Before the replicas: a request that the proxy had then is seen there now, or on its way.
            self._view = await self._front.observe()
        seen = await asyncio.gather(*(self._engines[i].observe() for i in indexes))
        now = self._clock()
        for i, observation in zip(indexes, seen, strict=True):
            self._replicas[i] = observation
            self._memory.saw(i, observation, now)
        self._meter.saw(self._replicas)

    def _observed(self, records: _Records) -> Observed:
        self._memory.forget_rollouts([rollout.id for rollout in records.open.values()])
        memory = self._memory
        self.sight = Sight(dict(self._replicas), records.table)
        return Observed(
            table=records.table,
            open=records.open,
            latest=records.latest,
            replicas=dict(self._replicas),
            incarnation=records.incarnation,
            epoch=self._epoch,
            staged=self._staging.staged(),
            checked=dict(memory.checked),
            probed=frozenset(memory.probed),
            blocked=records.blocked,
            attempts=dict(memory.attempts),
            since=dict(memory.since),
            front=self._view,
            room=self._room(records),
        )

    def _room(self, records: _Records) -> Room:
        """Room for more processes, which is asked only while some of the desired ones are not there."""
        base = records.open[BASE].target if BASE in records.open else records.table.base
        if base is None:
            return Room()
        setup = Setup(Loaded(base.ref, base.digest), records.desired.engine)
        seen = [s for s in self._replicas.values() if s.phase not in (Phase.ABSENT, Phase.DEAD)]
        there = [each for each in seen if each.fingerprint == setup.fingerprint]
        return Room() if len(there) >= records.desired.replicas else self._measure(setup)

    def _read(self) -> _Records:
        name = self.declared.deployment.name
        deployments = self._registry.deployments
        engine = self.declared.deployment.engine.fingerprint()
        latest = deployments.latest_rollouts(name)
        return _Records(
            desired=resolve_desired(self._registry, self.declared),
            table=self._guarded(deployments.routes(name)),
            open={rollout.target.served: rollout for rollout in deployments.open_rollouts(name)},
            latest={rollout.target.served: rollout for rollout in latest},
            blocked={
                (block.digest, block.base_digest): block.reason
                for block in deployments.blocks(name)
                if block.engine == engine
            },
            incarnation=self._registry.events.position().incarnation,
        )

    def _guarded(self, table: RouteTable) -> RouteTable:
        """Where other machines reach it, nobody is answered without a key: not even before there is one."""
        if table.keys is None and self.declared.deployment.is_public:
            return replace(table, keys={})
        return table

    def _record(self, desired: Desired, observed: Observed, current: Plan) -> None:
        """Say in the registry what was seen: where replicas are at once, everything else at the end."""
        settled = None if current.steps else conditions(desired, observed, current)
        self._recorder.record(self._statuses(observed.replicas), settled)

    async def leave(self) -> None:
        """Say where its replicas are at the end: whoever asks later finds nobody else who knows.

        Raises:
            StaleAuthority: another controller leads.
            DatabaseUnavailable: the registry cannot be reached.
        """
        await self._look()
        await asyncio.to_thread(self._recorder.record, self._statuses(self._replicas), None)

    def _statuses(self, replicas: Mapping[int, Observation]) -> list[ReplicaStatus]:
        name = self.declared.deployment.name
        return [_status(name, i, seen, self._view) for i, seen in sorted(replicas.items())]

    def _say(self, line: str) -> None:
        if line and line != self._said:
            self._report(self.declared.deployment.name, line)
        self._said = line


def _batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps in order; what loads or asks different replicas is put together, for it takes its time."""
    batch: list[Step] = []
    for step in steps:
        places = [other.replica for other in batch if isinstance(other, _SLOW)]
        if batch and not (
            isinstance(step, _SLOW) and step.replica not in places and len(places) == len(batch)
        ):
            yield batch
            batch = []
        batch.append(step)
    if batch:
        yield batch


def _status(deployment: str, index: int, seen: Observation, front: FrontView | None) -> ReplicaStatus:
    return ReplicaStatus(
        deployment=deployment,
        index=index,
        phase=seen.phase.value,
        endpoint=seen.endpoint,
        address=front.address if front else seen.endpoint,
        boot=seen.boot,
        base=seen.base,
        models=tuple(sorted(seen.models)),
        in_flight=dict(seen.in_flight),
        detail=seen.detail[-500:],
    )
