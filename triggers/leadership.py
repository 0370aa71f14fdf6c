"""Doing a piece of work in one process at a time, by a lease.

Nobody's wall clock is trusted: whoever wants a lease watches its beat, and takes it over when the beat has
not moved for a term of the watcher's own monotonic clock. A holder that died on this machine is recognised at
once. The leader writes under the lease's epoch, so one that was only slow changes nothing after that.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from registry.errors import DatabaseUnavailable
from registry.processes import Process, is_known_dead
from registry.protocol import Leases
from registry.values import Lease
from triggers.calls import Threads
from triggers.tasks import first_of, wait_for_event

_LOOK_SECONDS = 0.25
_BEATS_A_TERM = 3


class Move(StrEnum):
    TAKE = "take"  # nobody holds it, or its holder is dead
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A lease as it was first seen with its present beat."""

    lease: Lease
    at: float  # monotonic seconds


def sight(before: Sighting | None, lease: Lease | None, now: float) -> Sighting | None:
    """What is known of a holder after looking again."""
    if lease is None:
        return None
    return before if before is not None and before.lease == lease else Sighting(lease, now)


def decide(sighting: Sighting | None, now: float, term: float, *, holder_is_dead: bool) -> Move:
    """Whether to take a lease that was looked at just now. ``term`` is in seconds."""
    if sighting is None or holder_is_dead or now - sighting.at >= term:
        return Move.TAKE
    return Move.WATCH


def new_holder() -> str:
    """A name that says which process holds a lease, and which of its holders."""
    return json.dumps({**Process.current().to_json(), "one": secrets.token_hex(4)})


class Leadership:
    """One candidate for one lease."""

    def __init__(
        self,
        leases: Leases,
        name: str,
        *,
        term: float,
        calls: Threads,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._name = name
        self._term = term
        self._calls = calls
        self._clock = clock
        self._holder = new_holder()
        self._sighting: Sighting | None = None

    def try_to_lead(self) -> Lease | None:
        """Look once, and take the lease if its time has come."""
        now = self._clock()
        self._sighting = sight(self._sighting, self._leases.get(self._name), now)
        dead = self._sighting is not None and is_known_dead(self._sighting.lease.holder)
        if decide(self._sighting, now, self._term, holder_is_dead=dead) is Move.WATCH:
            return None
        seen = self._sighting.lease if self._sighting else None
        return self._leases.acquire(self._name, self._holder, seen=seen)

    async def lead(self, stop: asyncio.Event, work: Callable[[Lease], Awaitable[None]]) -> None:
        """Whenever the lease is ours, do ``work`` under it; until ``stop``.

        The work is cancelled when the lease is lost. An error of the work ends this, with the lease freed.
        """
        while not stop.is_set():
            lease = await self._calls(self.try_to_lead)
            if lease is None:
                await wait_for_event(stop, min(_LOOK_SECONDS, self._term / _BEATS_A_TERM))
                continue
            await self._work_under(lease, work)

    async def _work_under(self, lease: Lease, work: Callable[[Lease], Awaitable[None]]) -> None:
        working = asyncio.ensure_future(work(lease))
        beating = asyncio.create_task(self._beat(lease))
        try:
            await first_of(working, beating)
        finally:
            with suppress(DatabaseUnavailable):
                await self._calls(lambda: self._leases.release(lease))

    async def _beat(self, lease: Lease) -> None:
        """Beat until the lease is lost, or could not be confirmed for so long that it may be."""
        confirmed = self._clock()
        while self._clock() - confirmed < self._term:
            await asyncio.sleep(self._term / _BEATS_A_TERM)
            started = self._clock()
            with suppress(DatabaseUnavailable):
                if not await self._calls(lambda: self._leases.beat([lease])):
                    return
                confirmed = started
