"""Carrying out the planner's steps: each is one effect on the registry, on files, or on a replica."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from registry.crashpoints import reached
from registry.deployments import Block, Loaded, Rollout, RolloutState
from registry.errors import (
    ContentDamaged,
    DatabaseUnavailable,
    InvalidContent,
    NotFound,
    PodiumError,
    Unavailable,
)
from registry.protocol import Registry
from registry.values import Role
from serving.deployment import VLLM
from serving.engine import Engine, Launch, Observation, Phase
from serving.errors import AdapterRefused, ProbeFailed, StaleController
from serving.facts import BaseFacts, adapter_facts, base_facts
from serving.front import Front
from serving.memory import Memory
from serving.metrics import SwapMeter
from serving.planning import FRONT_KEY, attempts_key, files_key, setup_key
from serving.preflight import preflight, refusals
from serving.probing import probe
from serving.staging import Staging
from serving.state import (
    Apply,
    Begin,
    Check,
    CloseFront,
    Drain,
    DropRoute,
    Fail,
    Finish,
    Flip,
    Forget,
    Load,
    Observed,
    Probe,
    Route,
    Stage,
    Start,
    Step,
    Stop,
    Switch,
    Unload,
    Unstage,
)

__all__ = ["Executor"]

STOP_GRACE_SECONDS = 30.0
DYING_SECONDS = 1.6  # for which a vLLM whose engine has died may go on to answer
_DYING_LOOKS = 8


class Executor:
    """Takes steps for one deployment. Failures go to the memory's accounts; lost authority is raised."""

    def __init__(
        self,
        deployment: str,
        registry: Registry,
        engines: Mapping[int, Engine],
        staging: Staging,
        memory: Memory,
        *,
        engine: VLLM,
        front: Front | None = None,
        clock: Callable[[], float] = time.time,
        meter: SwapMeter | None = None,
        dying_seconds: float = DYING_SECONDS,
    ) -> None:
        self._dying_seconds = dying_seconds
        self._deployment = deployment
        self._registry = registry
        self._engines = engines
        self._staging = staging
        self._memory = memory
        self._engine = engine
        self._front = front
        self._clock = clock
        self._meter = meter or SwapMeter(deployment)
        self._base: BaseFacts | None = None

    async def take(self, step: Step, observed: Observed) -> bool:
        """Take one step; whether it went well.

        Raises:
            StaleAuthority: another controller leads this deployment now.
        """
        key, began = _account(step), time.monotonic()
        try:
            await self._dispatch(step, observed)
        except StaleController:
            return False  # the replica has booted or changed since the look; a new look tells
        except (AdapterRefused, InvalidContent, NotFound, Unavailable) as error:
            self._meter.failed(step, error)
            await self._count(step, key, error)
            return False
        if isinstance(step, Load | Probe) and key is not None and not step.rollout:
            self._memory.succeeded(key)
        self._meter.took(step, observed, time.monotonic() - began)
        if isinstance(step, Check):
            self._meter.refused(refusals(self._memory.checked[step.version.digest, step.base.digest]))
        return True

    async def _count(self, step: Step, key: str | None, error: PodiumError) -> None:
        """Write a failure to its account; raise what no account is for."""
        if key is None or isinstance(error, DatabaseUnavailable):
            raise error
        if isinstance(step, Stage) and not isinstance(error, ContentDamaged | NotFound | InvalidContent):
            key = files_key(step.version.digest)  # a store that is down is not the version's fault
        certain = bool(error.details.get("certain")) or isinstance(error, InvalidContent)
        fatal = (
            isinstance(step, Load | Probe)
            and not isinstance(error, ProbeFailed)
            and await self._took_down(step.replica)
        )
        self._memory.failed(key, error.message, self._clock(), certain=certain, fatal=fatal)
        if isinstance(step, Start):
            self._memory.failed(setup_key(step.setup.fingerprint), error.message, self._clock())

    async def _took_down(self, replica: int) -> bool:
        """Whether a replica dies of what was just done to it. A dying vLLM answers for a moment longer."""
        for _ in range(_DYING_LOOKS):
            if (await self._engines[replica].observe()).phase in (Phase.DEAD, Phase.SILENT):
                return True
            await asyncio.sleep(self._dying_seconds / _DYING_LOOKS)
        return False

    async def _dispatch(self, step: Step, observed: Observed) -> None:
        match step:
            case Begin() | Flip() | Switch() | Finish() | Fail() | DropRoute() | Forget():
                await asyncio.to_thread(self._record, step, observed)
            case Stage():
                await asyncio.to_thread(self._staging.stage, step.version)
                reached("rollout.staged")
            case Check():
                await asyncio.to_thread(self._check, step)
                reached("rollout.checked")
            case Unstage():
                await asyncio.to_thread(self._unstage, step.digest)
            case Route() | CloseFront():
                await self._act_on_front(step, observed)
            case _:
                await self._act_on_replica(step, observed)

    async def _act_on_front(self, step: Route | CloseFront, observed: Observed) -> None:
        assert self._front is not None, "nothing is routed without a proxy"
        if isinstance(step, CloseFront):
            await self._front.stop()
            return
        await self._front.route(step.backends, observed.fence)
        self._memory.succeeded(FRONT_KEY)
        reached("rollout.routed")

    async def _act_on_replica(
        self, step: Start | Drain | Stop | Load | Probe | Apply | Unload, observed: Observed
    ) -> None:
        engine = self._engines[step.replica]
        seen = observed.replicas.get(step.replica, Observation(Phase.ABSENT))
        match step:
            case Start():
                base, engine_settings = step.setup.base, VLLM.from_text(step.setup.engine)
                path = self._staging.path(base.digest)
                await engine.start(Launch(base.ref, path, step.setup.fingerprint, engine_settings))
                reached("replica.started")
            case Drain():
                await engine.drain(observed.fence, seen.boot or "")
            case Stop():
                if seen.phase is Phase.SILENT:
                    self._memory.failed(setup_key(seen.fingerprint or ""), step.reason, self._clock())
                await engine.stop(STOP_GRACE_SECONDS if seen.phase is Phase.DRAINING else 1.0)
            case Load():
                await self._require_ready(step.replica)
                await engine.load(step.version.ref, self._staging.path(step.version.digest), observed.fence)
                reached("rollout.loaded")
            case Probe():
                await self._probe(engine, step, seen)
                reached("rollout.probed")
            case Apply():
                await engine.apply(step.routes, seen.boot or "")
                reached("rollout.applied")
            case Unload():
                self._memory.probed.discard((seen.boot or "", step.ref))  # loaded again, it is asked again
                await engine.unload(step.ref, observed.fence)
                reached("rollout.unloaded")

    async def _require_ready(self, replica: int) -> None:
        """A replica that died of something else must not be laid to what was about to be loaded into it."""
        phase = (await self._engines[replica].observe()).phase
        if phase is not Phase.READY:
            raise StaleController(f"Replica {replica} is {phase} since it was looked at.", remedy="")

    async def _probe(self, engine: Engine, step: Probe, seen: Observation) -> None:
        boot = seen.boot or ""
        if step.is_base:
            self._memory.baselines[boot] = await probe(engine, step.version.ref, None)
        else:
            baseline = self._memory.baselines.get(boot)
            if baseline is None and seen.base is not None:
                baseline = self._memory.baselines[boot] = await probe(engine, seen.base, None)
            await probe(engine, step.version.ref, baseline)
        self._memory.probed.add((boot, step.version.ref))

    def _check(self, step: Check) -> None:
        """Compare an adapter's files with its base's, as they lie staged here."""
        key = (step.version.digest, step.base.digest)
        adapter = adapter_facts(
            self._staging.path(step.version.digest),
            digest=step.version.digest,
            trained_on=self._trained_on(step.version),
        )
        self._memory.checked[key] = preflight(
            adapter, self._base_facts(step.base), max_rank=self._engine.max_lora_rank
        )

    def _unstage(self, digest: str) -> None:
        """Remove files while nobody else can come to lead: the next controller may need them again."""
        with self._registry.transaction():
            self._staging.unstage(digest)

    def _base_facts(self, base: Loaded) -> BaseFacts:
        """A base does not change, and reading its tokenizer takes longer than the rest of a rollout."""
        if self._base is None or self._base.digest != base.digest:
            self._base = base_facts(self._staging.path(base.digest), digest=base.digest)
        return self._base

    def _trained_on(self, version: Loaded) -> str | None:
        graph = self._registry.lineage.walk(version.ref, up=True, depth=1)
        digests = {node.value: node.digest for node in graph.nodes}
        bases = [edge.parent for edge in graph.edges if edge.child == graph.root and edge.role is Role.BASE]
        return digests[bases[0]] if bases else None

    def _record(
        self, step: Begin | Flip | Switch | Finish | Fail | DropRoute | Forget, observed: Observed
    ) -> None:
        """Effects on the registry; each is one transaction."""
        deployments = self._registry.deployments
        match step:
            case Begin():
                deployments.begin(step.target)
                reached("rollout.begun")
            case Flip():
                deployments.flip(step.rollout.id)
                reached("rollout.flipped")
            case Switch():
                self._switch(step)
                reached("rollout.flipped")
            case Finish():
                deployments.finish(step.rollout.id, step.state, step.reason)
                reached("rollout.finished")
            case Fail():
                self._fail(step, observed)
                reached("rollout.failed")
            case DropRoute():
                deployments.drop_route(self._deployment, step.served)
            case Forget():
                deployments.forget(self._deployment)

    def _switch(self, step: Switch) -> None:
        """One transaction: base, settings and all that goes with them are recorded together."""
        with self._registry.transaction():
            for rollout in step.rollouts:
                self._registry.deployments.flip(rollout.id)
            self._registry.deployments.record_engine(self._deployment, step.setup.engine)

    def _fail(self, step: Fail, observed: Observed) -> None:
        """One transaction: the rollout has failed, its content is blocked, its alias is back."""
        rollout, target = step.rollout, step.rollout.target
        with self._registry.transaction():
            self._registry.deployments.finish(rollout.id, RolloutState.FAILED, step.reason)
            if step.certain:
                base = observed.table.base
                base_digest = base.digest if base and target.served else target.digest
                self._registry.deployments.block(
                    Block(
                        self._deployment,
                        target.digest,
                        base_digest,
                        self._engine.fingerprint(),
                        step.reason,
                        datetime.now(UTC),
                    )
                )
            serving = observed.table.routes.get(target.served)
            # What serves already was not at fault: other settings were. Its alias stays.
            if target.alias is not None and (serving is None or serving.current.digest != target.digest):
                self._put_back(rollout, step.reason)

    def _put_back(self, rollout: Rollout, reason: str) -> None:
        target = rollout.target
        assert target.alias is not None
        moved = self._registry.promotions.revert(
            target.artifact,
            target.alias,
            failed_generation=target.generation,
            reason=f"{target.ref} could not be served: {reason}",
        )
        if moved is not None:
            self._registry.deployments.record_revert(rollout, f"back to v{moved.to_version}: {reason}")


def _account(step: Step) -> str | None:
    """To whose account a failure of the step goes; None: it is the controller's own trouble."""
    match step:
        case Stage():
            return (
                attempts_key(step.rollout) if step.rollout else attempts_key(replica=0, ref=step.version.ref)
            )
        case Check():
            return attempts_key(step.rollout)
        case Load() | Probe():
            if step.rollout:
                return attempts_key(step.rollout)
            return attempts_key(replica=step.replica, ref=step.version.ref)
        case Start() | Drain() | Stop() | Apply() | Unload():
            return attempts_key(replica=step.replica)
        case Route() | CloseFront():
            return FRONT_KEY
        case _:
            return None
