"""What the planner looks at, and the questions that it asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from registry.deployments import BASE, Loaded, Rollout, RolloutState, Target
from serving.engine import Observation, Phase
from serving.planning.accounts import MOST_STARTS, attempts_key, files_key, setup_key
from serving.preflight import refusals
from serving.state import Desired, Load, Observed, Probe, Setup, Stage, Step, route_map

__all__ = ["View", "loaded"]

POLL_SECONDS = 2.0  # how long a quiet deployment is left alone
BUSY_POLL_SECONDS = 0.2  # while something is on its way that no event will tell of
_LONGEST_BACKOFF = 60.0


def loaded(target: Target) -> Loaded:
    return Loaded(target.ref, target.digest)


@dataclass
class View:
    """One moment, and what the planner finds itself waiting for at it."""

    desired: Desired
    observed: Observed
    now: float
    waiting: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)  # what a person has to do before anything can be done
    wake_at: float = 0.0
    leaving: set[int] = field(default_factory=set)  # replicas that shall get no new requests

    def __post_init__(self) -> None:
        self.wake_at = self.now + POLL_SECONDS

    @property
    def slots(self) -> list[int]:
        """Places for processes: twice as many as replicas where a proxy can lead from one to another."""
        return sorted({*self.observed.replicas, *range(self.desired.replicas)})

    def replica(self, index: int) -> Observation:
        return self.observed.replicas.get(index, Observation(Phase.ABSENT))

    def replicas_in(self, phase: Phase) -> list[tuple[int, Observation]]:
        return [(i, seen) for i, seen in sorted(self.observed.replicas.items()) if seen.phase is phase]

    def of(self, setup: Setup | None) -> list[tuple[int, Observation]]:
        """The processes of a setup, living or dead."""
        if setup is None:
            return []
        return [
            (i, seen)
            for i, seen in sorted(self.observed.replicas.items())
            if seen.phase is not Phase.ABSENT and seen.fingerprint == setup.fingerprint
        ]

    def recorded(self) -> Setup | None:
        """The setup that serves."""
        base = self.observed.table.base
        return Setup(base, self.observed.table.engine) if base else None

    def wanted(self) -> Setup | None:
        """The setup that should serve: the recorded one, until another is desired that everything fits."""
        recorded = self.recorded()
        if self.desired.paused and recorded is not None:
            return recorded
        base = self.base_to_run()
        if base is None:
            return None
        wanted = Setup(base, self.desired.engine)
        return recorded if recorded is not None and self.is_given_up(wanted) else wanted

    def is_given_up(self, setup: Setup) -> bool:
        """Whether its processes have failed so often that another setup must do."""
        failed = self.observed.attempts.get(setup_key(setup.fingerprint))
        return failed is not None and failed.count >= MOST_STARTS

    def serving(self) -> list[tuple[int, Observation]]:
        """Ready processes of the recorded base: also with settings that are on their way to be recorded."""
        recorded, wanted = self.recorded(), self.wanted()
        setups = {recorded.fingerprint} if recorded else set()
        if recorded and wanted and recorded.base == wanted.base:
            setups.add(wanted.fingerprint)
        return [(i, seen) for i, seen in self.replicas_in(Phase.READY) if seen.fingerprint in setups]

    def up_to_date(self) -> list[tuple[int, Observation]]:
        return [(i, seen) for i, seen in self.serving() if self.is_up_to_date(seen)]

    def is_up_to_date(self, seen: Observation) -> bool:
        return seen.map == route_map(self.observed.table, self.observed.fence)

    def is_usable(self, seen: Observation, version: Loaded) -> bool:
        return (seen.base == version.ref or version.ref in seen.models) and (
            seen.boot,
            version.ref,
        ) in self.observed.probed

    def bring(self, index: int, seen: Observation, version: Loaded, rollout: Rollout | None = None) -> Step:
        if seen.base == version.ref:
            return Probe(index, version, True, rollout)
        if version.ref not in seen.models:
            return Load(index, version, rollout)
        return Probe(index, version, False, rollout)

    def routed(self) -> list[Loaded]:
        """The base, then every adapter that a route sends somebody to."""
        base = self.observed.table.base
        adapters = [r.current for served, r in self.observed.table.routes.items() if served != BASE]
        return [*([base] if base else []), *(v for v in adapters if not base or v.digest != base.digest)]

    def previous(self) -> list[Loaded]:
        base = self.observed.table.base
        found = [r.previous for served, r in self.observed.table.routes.items() if served != BASE]
        return [v for v in found if v is not None and not (base and v.digest == base.digest)]

    def coming(self) -> list[Loaded]:
        return [loaded(rollout.target) for rollout in self.observed.open.values()]

    def adapters(self) -> list[Loaded]:
        """What the served names answer with now, which a new base must fit."""
        base = self.observed.table.base
        routes = [r for served, r in self.observed.table.routes.items() if served in self.desired.serves]
        return [r.current for r in routes if not base or r.current.digest != base.digest]

    def coming_base(self) -> Loaded | None:
        """Another base that is on its way to be recorded."""
        rollout, current = self.observed.open.get(BASE), self.observed.table.base
        if rollout is None or rollout.state is not RolloutState.STARTED or current is None:
            return None
        return loaded(rollout.target) if rollout.target.digest != current.digest else None

    def joined(self) -> list[Rollout]:
        """Rollouts that go live together with the coming base: they do not fit the one that serves."""
        coming = self.coming_base()
        if coming is None:
            return []
        return [r for r in self.observed.open.values() if self._joins(r, coming)]

    def is_changing(self) -> bool:
        """Whether a served name is on its way to another version, on the base that serves."""
        joined = {rollout.id for rollout in self.joined()}
        return any(
            rollout.state is RolloutState.STARTED and rollout.id not in joined
            for served, rollout in self.observed.open.items()
            if served in self.desired.serves
        )

    def _joins(self, rollout: Rollout, coming: Loaded) -> bool:
        target, current = rollout.target, self.observed.table.base
        if rollout.state is not RolloutState.STARTED or target.served not in self.desired.serves:
            return False
        fits_now = current is None or not self.is_refused(target.digest, current.digest)
        return target.digest == coming.digest or not fits_now

    def is_refused(self, digest: str, base: str) -> bool:
        """Whether a content is known not to be servable on a base."""
        return (digest, base) in self.observed.blocked or bool(
            refusals(self.observed.checked.get((digest, base), ()))
        )

    def set_on(self, base: Loaded) -> list[Loaded]:
        """All that the served names would answer with on a coming base, less the base itself."""
        joined = {rollout.target.served: loaded(rollout.target) for rollout in self.joined()}
        routes = self.observed.table.routes
        versions = [
            joined.get(served) or routes[served].current
            for served in self.desired.serves
            if served in joined or served in routes
        ]
        return [version for version in versions if version.digest != base.digest]

    def base_to_run(self) -> Loaded | None:
        """The recorded base, or the one on its way to be recorded once everything is known to fit it."""
        rollout = self.observed.open.get(BASE)
        if rollout is None or rollout.state is not RolloutState.STARTED:
            return self.observed.table.base
        candidate = loaded(rollout.target)
        return candidate if self.set_fits(candidate) else self.observed.table.base

    def set_fits(self, base: Loaded) -> bool:
        """Whether all that is served is known to fit a base; what runs on it already does."""
        current, checked = self.observed.table.base, self.observed.checked
        return (
            current is None
            or current.digest == base.digest
            or all(
                (version.digest, base.digest) in checked
                and not refusals(checked[version.digest, base.digest])
                for version in self.set_on(base)
            )
        )

    def is_unrouted(self, index: int, seen: Observation) -> bool:
        """Whether the proxy sends a replica nothing more, and nothing is still on its way to it.

        Requests that the proxy has given it are being read, being answered, or not there yet. The proxy is
        asked before the replica, so none that is on its way can be missed.
        """
        front = self.observed.front
        if front is None:
            return True
        arrived = seen.arriving + sum(seen.in_flight.values())
        return index not in front.routed and not seen.arriving and front.sessions.get(index, 0) <= arrived

    def stage(self, version: Loaded, rollout: Rollout | None = None) -> Iterator[Step]:
        key = attempts_key(rollout) if rollout else attempts_key(replica=0, ref=version.ref)
        what = f"the files of {version.ref}"
        if self.may_try(key, what) and self.may_try(files_key(version.digest), what):
            yield Stage(version, rollout)

    def may_try(self, key: str, what: str) -> bool:
        failed = self.observed.attempts.get(key)
        if failed is None:
            return True
        again = failed.last_at + min(_LONGEST_BACKOFF, 2.0 ** (failed.count - 1))
        if self.now >= again:
            return True
        times = "once" if failed.count == 1 else f"{failed.count} times"
        self.waiting.append(f"{what} failed {times}, and is tried again shortly: {failed.reason}")
        self.wake_at = min(self.wake_at, again)
        return False

    def wait(self, why: str) -> None:
        self.waiting.append(why)
        self.wake_at = min(self.wake_at, self.now + BUSY_POLL_SECONDS)
