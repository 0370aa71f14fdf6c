"""The rollout's decisions: a pure function from what is desired and observed to the next steps.

It is level-triggered: nothing but its arguments says where things stand, so a controller that was killed at
any line is continued by the next one, which looks and plans again. Steps may be repeated; each is a whole
effect.

A promotion goes Begin, Stage, Check, Load and Probe on every replica, Flip (the route is decided, in the
database), Apply on every replica, Finish as live. Before Flip anything that goes wrong fails the rollout and
leaves the route as it was. After Flip it can only go forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from registry.deployments import BASE, Loaded, Rollout, RolloutState, Target
from serving.engine import Observation, Phase
from serving.preflight import refusals
from serving.state import (
    Apply,
    Begin,
    Check,
    Desired,
    Drain,
    DropRoute,
    Fail,
    Finish,
    Flip,
    Load,
    Observed,
    Plan,
    Probe,
    Stage,
    Start,
    Step,
    Stop,
    Unload,
    Unstage,
    fingerprint_of,
    route_map,
)

__all__ = ["attempts_key", "files_key", "plan"]

POLL_SECONDS = 2.0  # how long a quiet deployment is left alone
BUSY_POLL_SECONDS = 0.2  # while something is on its way that no event will tell of
MOST_ATTEMPTS = 2  # of a rollout whose cause of failure is not certain
MOST_BASE_STARTS = 3  # of a new base, before the old one is started again
MOST_RESYNCS = 3  # failures to bring a booted replica up to date, before it is started anew
SILENCE_SECONDS = 30.0  # without an answer, before a process that lives is ended
DRAIN_SECONDS = 120.0  # for running answers, before a process is ended under them
_LONGEST_BACKOFF = 60.0


def attempts_key(rollout: Rollout | None = None, *, replica: int | None = None, ref: str = "") -> str:
    """To whose account a failure goes: a rollout's, a replica's, or a version's on a replica."""
    return f"rollout/{rollout.id}" if rollout else f"replica/{replica}/{ref}" if ref else f"replica/{replica}"


def files_key(digest: str) -> str:
    """The account of bringing a content's files here, where the store itself is in trouble."""
    return f"files/{digest}"


def plan(desired: Desired, observed: Observed, now: float) -> Plan:
    """The steps to take now. An empty plan that waits for nothing means that all is as it should be."""
    planner = _Planner(desired, observed, now)
    for stage in planner.stages():
        planner.steps.extend(stage())
        if planner.steps:
            break
    return planner.result()


@dataclass
class _Planner:
    desired: Desired
    observed: Observed
    now: float
    steps: list[Step] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    wake_at: float = 0.0

    def __post_init__(self) -> None:
        self.wake_at = self.now + POLL_SECONDS

    def stages(self) -> list[Callable[[], Iterator[Step]]]:
        """In order; the first that has steps is what is done. What serves now comes before what is new."""
        if self.desired.removed:
            return [self.end_rollouts, self.shut_down, self.drop_routes, self.tidy_files]
        keep = [self.run_processes, self.bring_up_to_date, self.finish_live]
        if self.desired.paused:
            return keep
        return [
            self.drop_routes,
            self.begin_rollouts,
            *keep,
            self.advance_base,
            self.advance_rollouts,
            self.warm_previous,
            self.unload_unneeded,
            self.tidy_files,
        ]

    def result(self) -> Plan:
        wake = self.now if self.steps else self.wake_at
        return Plan(tuple(self.steps), wake, tuple(self.waiting))

    # -- rollouts: which are open ---------------------------------------------------------------------------

    def begin_rollouts(self) -> Iterator[Step]:
        for served, target in self.desired.targets().items():
            current = self.observed.open.get(served)
            if target is None:
                if current is not None and current.state is RolloutState.STARTED:
                    yield Finish(current, RolloutState.SUPERSEDED, "what it followed is gone")
                elif current is None and served not in self.observed.table.routes:
                    self.waiting.append(f"{served or 'the base'}: its alias does not exist yet")
            elif self._needs_beginning(current, self.observed.latest.get(served), target):
                yield Begin(target)
        yield from self._end_undeclared()

    def _needs_beginning(self, current: Rollout | None, latest: Rollout | None, target: Target) -> bool:
        if current is None:
            return latest is None or latest.target != target
        if current.target == target:
            return False
        # A decided route is carried to its end first, as long as there is a replica to take it.
        return current.state is RolloutState.STARTED or not self._replicas(Phase.READY)

    def _end_undeclared(self) -> Iterator[Step]:
        for served, rollout in self.observed.open.items():
            if served not in self.desired.targets():
                yield Finish(rollout, RolloutState.SUPERSEDED, "the name is no longer served")

    def end_rollouts(self) -> Iterator[Step]:
        for rollout in self.observed.open.values():
            yield Finish(rollout, RolloutState.SUPERSEDED, "the deployment was removed")

    def drop_routes(self) -> Iterator[Step]:
        wanted = {} if self.desired.removed else self.desired.targets()
        for served in self.observed.table.routes:
            if served not in wanted:
                yield DropRoute(served)

    # -- processes: which run, with which base --------------------------------------------------------------

    def run_processes(self) -> Iterator[Step]:
        base = self._base_to_run()
        if base is None:
            return
        if base.digest not in self.observed.staged:
            yield from self._stage(base, self.observed.open.get(BASE))
            return
        wanted = fingerprint_of(base, self.desired.engine)
        for index in range(self.desired.replicas):
            yield from self._run_process(index, self._replica(index), base, wanted)
        yield from self._stop_surplus()

    def _run_process(self, index: int, seen: Observation, base: Loaded, wanted: str) -> Iterator[Step]:
        waited = self.now - self.observed.since.get(index, self.now)
        match seen.phase:
            case Phase.ABSENT | Phase.DEAD:
                if self._may_try(attempts_key(replica=index), f"replica {index}: {_last_line(seen.detail)}"):
                    yield Start(index, base, wanted)
            case Phase.SILENT:
                if waited >= SILENCE_SECONDS:
                    yield Stop(index, "it does not answer")
                else:
                    self._wait(f"replica {index}: it does not answer")
            case Phase.DRAINING:
                yield from self._finish_draining(index, seen, waited)
            case Phase.STARTING:
                if seen.fingerprint != wanted:
                    yield Stop(index, "another base or other settings are wanted")
                else:
                    self._wait(f"replica {index}: it is starting")
            case Phase.READY:
                if seen.fingerprint != wanted:
                    yield (
                        Drain(index) if seen.map else Stop(index, "another base or other settings are wanted")
                    )

    def _finish_draining(self, index: int, seen: Observation, waited: float) -> Iterator[Step]:
        if not seen.in_flight:
            yield Stop(index, "it is drained")
        elif waited >= DRAIN_SECONDS:
            yield Stop(index, f"its answers did not end within {DRAIN_SECONDS:.0f} s")
        else:
            self._wait(f"replica {index}: {sum(seen.in_flight.values())} answers are running")

    def _stop_surplus(self) -> Iterator[Step]:
        for index, seen in self.observed.replicas.items():
            if index >= self.desired.replicas and seen.phase is not Phase.ABSENT:
                yield from self._shut_down(index, seen)

    def shut_down(self) -> Iterator[Step]:
        for index, seen in self.observed.replicas.items():
            if seen.phase is not Phase.ABSENT:
                yield from self._shut_down(index, seen)

    def _shut_down(self, index: int, seen: Observation) -> Iterator[Step]:
        if seen.phase is Phase.READY and seen.map:
            yield Drain(index)
        elif seen.phase is Phase.DRAINING:
            yield from self._finish_draining(index, seen, self.now - self.observed.since.get(index, self.now))
        else:
            yield Stop(index, "it is no longer wanted")

    def _base_to_run(self) -> Loaded | None:
        """The recorded base, or the one on its way to be recorded once everything is known to fit it."""
        rollout = self.observed.open.get(BASE)
        if rollout is None or rollout.state is not RolloutState.STARTED:
            return self.observed.table.base
        candidate = Loaded(rollout.target.ref, rollout.target.digest)
        return candidate if self._set_fits(candidate) else self.observed.table.base

    def _set_fits(self, base: Loaded) -> bool:
        """Whether all that is served is known to fit a base; what runs on it already does."""
        current, checked = self.observed.table.base, self.observed.checked
        return (
            current is None
            or current.digest == base.digest
            or all(
                (version.digest, base.digest) in checked
                and not refusals(checked[version.digest, base.digest])
                for version in self._adapters()
            )
        )

    # -- replicas: what serves now --------------------------------------------------------------------------

    def bring_up_to_date(self) -> Iterator[Step]:
        """Give each ready replica the routed versions, and then the map; until then it answers nobody new."""
        for index, seen in self._on_the_recorded_base():
            if self._is_up_to_date(seen):
                continue
            lacking = next((v for v in self._routed() if not self._is_usable(seen, v)), None)
            if lacking is None:
                yield Apply(index, route_map(self.observed.table, self.observed.fence))
            else:
                yield from self._resync(index, seen, lacking)

    def _resync(self, index: int, seen: Observation, lacking: Loaded) -> Iterator[Step]:
        key = attempts_key(replica=index, ref=lacking.ref)
        failed = self.observed.attempts.get(key)
        if failed is not None and failed.count >= MOST_RESYNCS:
            yield Stop(index, f"{lacking.ref} could not be brought up again: {failed.reason}")
        elif lacking.digest not in self.observed.staged:
            yield from self._stage(lacking)
        elif self._may_try(key, f"replica {index}: {lacking.ref}"):
            yield self._bring(index, seen, lacking)

    def finish_live(self) -> Iterator[Step]:
        """Live: every replica that may answer has the map. A silent one may, so it must go first."""
        ready = self._replicas(Phase.READY)
        if not ready or self._replicas(Phase.SILENT):
            return
        if all(self._is_up_to_date(seen) for _, seen in ready):
            for rollout in self.observed.open.values():
                if rollout.state is RolloutState.FLIPPED:
                    yield Finish(rollout, RolloutState.LIVE)

    def warm_previous(self) -> Iterator[Step]:
        """Load again, after a restart, what a rollback would go to. Nobody waits for it."""
        for index, seen in self._up_to_date():
            for version in self._previous():
                key = attempts_key(replica=index, ref=version.ref)
                if version.ref in seen.models or key in self.observed.attempts:
                    continue
                if version.digest in self.observed.staged:
                    yield Load(index, version)
                else:
                    yield from self._stage(version)

    def unload_unneeded(self) -> Iterator[Step]:
        needed = {version.ref for version in (*self._routed(), *self._previous(), *self._coming())}
        for index, seen in self._up_to_date():
            for ref in seen.models:
                if ref in needed or (seen.map and ref in seen.map.open):
                    continue
                if seen.in_flight.get(ref):
                    self._wait(f"replica {index}: {ref} is still answering")
                else:
                    yield Unload(index, ref)

    def tidy_files(self) -> Iterator[Step]:
        """Remove files only when no process can read them any more: vLLM reads an evicted adapter again."""
        settled = (Phase.ABSENT, Phase.DEAD, Phase.READY)
        if any(seen.phase not in settled for seen in self.observed.replicas.values()):
            return
        needed = {version.digest for version in (*self._routed(), *self._previous(), *self._coming())}
        for seen in self.observed.replicas.values():
            if seen.fingerprint:
                needed.add(seen.fingerprint.partition("/")[0])
        paths = [path for seen in self.observed.replicas.values() for path in seen.models.values()]
        for digest in self.observed.staged - needed:
            if not any(digest.removeprefix("sha256:") in path for path in paths):
                yield Unstage(digest)

    # -- rollouts: how they go on ---------------------------------------------------------------------------

    def advance_base(self) -> Iterator[Step]:
        rollout = self.observed.open.get(BASE)
        if rollout is None or rollout.state is not RolloutState.STARTED:
            return
        candidate = _version(rollout.target)
        failure = self._failure(rollout, candidate.digest, candidate.digest) or self._start_failure(candidate)
        if failure is not None:
            yield Fail(rollout, *failure)
            return
        checks = list(self._check_set(rollout, candidate))
        if checks or not self._set_fits(candidate):
            yield from checks[:1]
            return
        yield from self._bring_everywhere(rollout, candidate, [candidate, *self._adapters()])

    def _check_set(self, rollout: Rollout, base: Loaded) -> Iterator[Step]:
        """The base and what is served on it move as one set: each adapter must fit the new base."""
        current = self.observed.table.base
        if current is None or current.digest == base.digest:
            return
        for version in self._adapters():
            findings = self.observed.checked.get((version.digest, base.digest))
            if findings is None:
                lacking = next((v for v in (version, base) if v.digest not in self.observed.staged), None)
                if lacking is None:
                    yield Check(version, base, rollout)
                else:
                    yield from self._stage(lacking, rollout)
            elif refusals(findings):
                reason = f"{version.ref} does not fit {base.ref}: {refusals(findings)[0].message}"
                yield Fail(rollout, reason, True)

    def _start_failure(self, candidate: Loaded) -> tuple[str, bool] | None:
        failed = self.observed.attempts.get(attempts_key(replica=0))
        current = self.observed.table.base
        if failed is None or failed.count < MOST_BASE_STARTS or current is None:
            return None  # without an old base to go back to, it is tried until somebody mends it
        if current.digest == candidate.digest:
            return None
        return f"the engine did not start with {candidate.ref}: {failed.reason}", False

    def advance_rollouts(self) -> Iterator[Step]:
        base = self.observed.table.base
        if base is None or BASE in self.observed.open:
            return
        for served, rollout in self.observed.open.items():
            if rollout.state is RolloutState.STARTED and served in self.desired.serves:
                yield from self._advance(rollout, base)

    def _advance(self, rollout: Rollout, base: Loaded) -> Iterator[Step]:
        version = _version(rollout.target)
        failure = self._failure(rollout, version.digest, base.digest)
        findings = self.observed.checked.get((version.digest, base.digest))
        if version.digest == base.digest:
            yield Flip(rollout)
        elif failure is not None:
            yield Fail(rollout, *failure)
        elif not self._may_try(attempts_key(rollout), f"{version.ref}"):
            return
        elif version.digest not in self.observed.staged:
            yield from self._stage(version, rollout)
        elif findings is None:
            yield Check(version, base, rollout)
        elif refusals(findings):
            yield Fail(rollout, "; ".join(finding.message for finding in refusals(findings)), True)
        else:
            yield from self._bring_everywhere(rollout, base, [version])

    def _bring_everywhere(self, rollout: Rollout, base: Loaded, versions: list[Loaded]) -> Iterator[Step]:
        """Load and probe on every ready replica that runs ``base``; when none lacks anything, flip."""
        wanted = fingerprint_of(base, self.desired.engine)
        ready = [(i, seen) for i, seen in self._replicas(Phase.READY) if seen.fingerprint == wanted]
        if not ready:
            self._wait(f"{rollout.target.ref}: no replica is ready for it")
            return
        lacking = [(i, seen, v) for i, seen in ready for v in versions if not self._is_usable(seen, v)]
        if not lacking:
            yield Flip(rollout)
        elif self._may_try(attempts_key(rollout), rollout.target.ref):
            seen_replicas = set()
            for index, seen, version in lacking:
                if index not in seen_replicas:
                    seen_replicas.add(index)
                    yield self._bring(index, seen, version, rollout)

    def _failure(self, rollout: Rollout, digest: str, base_digest: str) -> tuple[str, bool] | None:
        """Why the rollout must be given up, and whether that is certain."""
        blocked = self.observed.blocked.get((digest, base_digest))
        if blocked is not None:
            return f"it is blocked: {blocked}", False
        attempts = self.observed.attempts.get(attempts_key(rollout))
        if attempts and (attempts.certain or attempts.fatal or attempts.count >= MOST_ATTEMPTS):
            return attempts.reason, attempts.certain
        return None

    # -- what is where --------------------------------------------------------------------------------------

    def _replica(self, index: int) -> Observation:
        return self.observed.replicas.get(index, Observation(Phase.ABSENT))

    def _replicas(self, phase: Phase) -> list[tuple[int, Observation]]:
        return [(i, seen) for i, seen in sorted(self.observed.replicas.items()) if seen.phase is phase]

    def _on_the_recorded_base(self) -> list[tuple[int, Observation]]:
        base = self.observed.table.base
        wanted = fingerprint_of(base, self.desired.engine) if base else None
        return [(i, seen) for i, seen in self._replicas(Phase.READY) if wanted and seen.fingerprint == wanted]

    def _up_to_date(self) -> list[tuple[int, Observation]]:
        return [(i, seen) for i, seen in self._on_the_recorded_base() if self._is_up_to_date(seen)]

    def _is_up_to_date(self, seen: Observation) -> bool:
        return seen.map == route_map(self.observed.table, self.observed.fence)

    def _is_usable(self, seen: Observation, version: Loaded) -> bool:
        return (seen.base == version.ref or version.ref in seen.models) and (
            seen.boot,
            version.ref,
        ) in self.observed.probed

    def _bring(self, index: int, seen: Observation, version: Loaded, rollout: Rollout | None = None) -> Step:
        if seen.base == version.ref:
            return Probe(index, version, True, rollout)
        if version.ref not in seen.models:
            return Load(index, version, rollout)
        return Probe(index, version, False, rollout)

    def _routed(self) -> list[Loaded]:
        """The base, then every adapter that a route sends somebody to."""
        base = self.observed.table.base
        adapters = [r.current for served, r in self.observed.table.routes.items() if served != BASE]
        return [*([base] if base else []), *(v for v in adapters if not base or v.digest != base.digest)]

    def _previous(self) -> list[Loaded]:
        base = self.observed.table.base
        found = [r.previous for served, r in self.observed.table.routes.items() if served != BASE]
        return [v for v in found if v is not None and not (base and v.digest == base.digest)]

    def _coming(self) -> list[Loaded]:
        return [_version(rollout.target) for rollout in self.observed.open.values()]

    def _adapters(self) -> list[Loaded]:
        """What the served names answer with now, which a new base must fit."""
        base = self.observed.table.base
        routes = [r for served, r in self.observed.table.routes.items() if served in self.desired.serves]
        return [r.current for r in routes if not base or r.current.digest != base.digest]

    def _stage(self, version: Loaded, rollout: Rollout | None = None) -> Iterator[Step]:
        key = attempts_key(rollout) if rollout else attempts_key(replica=0, ref=version.ref)
        what = f"the files of {version.ref}"
        if self._may_try(key, what) and self._may_try(files_key(version.digest), what):
            yield Stage(version, rollout)

    # -- time -----------------------------------------------------------------------------------------------

    def _may_try(self, key: str, what: str) -> bool:
        failed = self.observed.attempts.get(key)
        if failed is None:
            return True
        again = failed.last_at + min(_LONGEST_BACKOFF, 2.0 ** (failed.count - 1))
        if self.now >= again:
            return True
        self.waiting.append(f"{what}: failed {failed.count} times ({failed.reason}); again shortly")
        self.wake_at = min(self.wake_at, again)
        return False

    def _wait(self, why: str) -> None:
        self.waiting.append(why)
        self.wake_at = min(self.wake_at, self.now + BUSY_POLL_SECONDS)


def _version(target: Target) -> Loaded:
    return Loaded(target.ref, target.digest)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it is not running"
