"""What the planner looks at, and the questions that it asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from registry.deployments import BASE, Loaded, Rollout, RolloutState, Target
from serving.engine import Observation, Phase
from serving.preflight import refusals
from serving.state import Desired, Load, Observed, Probe, Stage, Step, fingerprint_of, route_map

__all__ = ["View", "attempts_key", "files_key", "loaded"]

POLL_SECONDS = 2.0  # how long a quiet deployment is left alone
BUSY_POLL_SECONDS = 0.2  # while something is on its way that no event will tell of
_LONGEST_BACKOFF = 60.0


def attempts_key(rollout: Rollout | None = None, *, replica: int | None = None, ref: str = "") -> str:
    """To whose account a failure goes: a rollout's, a replica's, or a version's on a replica."""
    return f"rollout/{rollout.id}" if rollout else f"replica/{replica}/{ref}" if ref else f"replica/{replica}"


def files_key(digest: str) -> str:
    """The account of bringing a content's files here, where the store itself is in trouble."""
    return f"files/{digest}"


def loaded(target: Target) -> Loaded:
    return Loaded(target.ref, target.digest)


@dataclass
class View:
    """One moment, and what the planner finds itself waiting for at it."""

    desired: Desired
    observed: Observed
    now: float
    waiting: list[str] = field(default_factory=list)
    wake_at: float = 0.0

    def __post_init__(self) -> None:
        self.wake_at = self.now + POLL_SECONDS

    def replica(self, index: int) -> Observation:
        return self.observed.replicas.get(index, Observation(Phase.ABSENT))

    def replicas_in(self, phase: Phase) -> list[tuple[int, Observation]]:
        return [(i, seen) for i, seen in sorted(self.observed.replicas.items()) if seen.phase is phase]

    def on_the_recorded_base(self) -> list[tuple[int, Observation]]:
        base = self.observed.table.base
        wanted = fingerprint_of(base, self.desired.engine) if base else None
        return [
            (i, seen) for i, seen in self.replicas_in(Phase.READY) if wanted and seen.fingerprint == wanted
        ]

    def up_to_date(self) -> list[tuple[int, Observation]]:
        return [(i, seen) for i, seen in self.on_the_recorded_base() if self.is_up_to_date(seen)]

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

    def base_to_run(self) -> Loaded | None:
        """The recorded base, or the one on its way to be recorded once everything is known to fit it."""
        rollout = self.observed.open.get(BASE)
        if rollout is None or rollout.state is not RolloutState.STARTED:
            return self.observed.table.base
        candidate = Loaded(rollout.target.ref, rollout.target.digest)
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
                for version in self.adapters()
            )
        )

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
