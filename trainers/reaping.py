"""Finding runs that their workers have left, and letting them be taken up again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from registry.crashpoints import reached
from registry.errors import DatabaseUnavailable, StaleAuthority
from registry.processes import is_known_dead
from registry.protocol import Registry
from registry.runs import Cause, lease_name
from registry.values import Lease, Origin


@dataclass(frozen=True, slots=True)
class _Seen:
    lease: Lease
    since: float


class LeaseWatch:
    """A lease is stale when this watcher has seen the same beat of it for a whole term.

    No clock of another machine counts, and none that can be set: only how long *we* have seen no beat.
    """

    def __init__(self, term: float) -> None:
        self._term = term
        self._seen: dict[str, _Seen] = {}

    def look(self, held: Sequence[Lease], now: float) -> list[Lease]:
        """Take note of all leases that are held ``now`` (seconds, monotonic); those that are stale."""
        before, self._seen = self._seen, {}
        stale = []
        for lease in held:
            seen = before.get(lease.name)
            if seen is None or seen.lease != lease:
                seen = _Seen(lease, now)
            self._seen[lease.name] = seen
            if now - seen.since >= self._term:
                stale.append(lease)
        return stale


class Reaper:
    """Looks after the runs of other workers."""

    def __init__(self, registry: Registry, worker: str, term: float, report: Callable[[str], None]) -> None:
        self._registry = registry
        self._worker = worker
        self._term = term
        self._report = report
        self._watch = LeaseWatch(term)

    def look(self, carried: Collection[str]) -> None:
        """Look once; runs whose worker is gone are fenced, and queued again where that is their rule.

        ``carried`` names the leases of the runs that this worker carries out. It may hold others without
        knowing: a claim may be committed though the database's answer was lost.
        """
        try:
            self._look(carried)
            for run in self._registry.runs.expire():
                self._report(f"run {run.id}: waited too long, now {run.state}")
        except DatabaseUnavailable:
            # Nobody could beat, so nobody's silence says anything.
            self._watch = LeaseWatch(self._term)

    def _look(self, carried: Collection[str]) -> None:
        held = self._registry.leases.held(lease_name(""))
        foreign = [lease for lease in held if lease.holder != self._worker or lease.name not in carried]
        left = {lease.name: lease for lease in self._watch.look(foreign, time.monotonic())}
        dead = self._dead_workers() if foreign else set()
        left |= {lease.name: lease for lease in foreign if lease.holder in dead}
        for lease in left.values():
            self._take_over(lease)
        for worker in dead:
            self._registry.workers.leave(worker)

    def _dead_workers(self) -> set[str]:
        """Workers of this machine whose process is gone: known at once, without waiting for a term."""
        return {worker.id for worker in self._registry.workers.all() if is_known_dead(worker.process)}

    def _take_over(self, seen: Lease) -> None:
        lease = self._registry.leases.acquire(seen.name, self._worker, seen=seen)
        if lease is None:
            return  # it has beaten since, or somebody was faster
        reached("run.taken_over")
        origin = Origin(f"worker:{self._worker}", lease.authority)
        run = seen.name.removeprefix(lease_name(""))
        with contextlib.suppress(StaleAuthority):
            ended = self._registry.acting(origin).runs.end(run, Cause.LOST)
            self._report(f"run {run}: left by {seen.holder}, now {ended.state}")
