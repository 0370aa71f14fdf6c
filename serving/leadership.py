"""Who leads a deployment: one controller, by a lease with an epoch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from registry.errors import Unavailable
from registry.processes import Process, is_elsewhere, is_known_dead
from registry.protocol import Registry
from registry.values import Lease, Origin
from triggers.leadership import Move, Sighting, decide, sight

__all__ = ["ACTOR", "Leadership"]

ACTOR = "system:serving"
_BEATS_PER_TERM = 5


class Leadership:
    """One process's claim on one deployment."""

    def __init__(
        self,
        deployment: str,
        registry: Registry,
        *,
        holder: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = f"controller/{deployment}"
        self._registry = registry
        self._holder = holder or Process.current().to_text()
        self._term = registry.settings.lease_seconds
        self._monotonic = monotonic
        self._sighting: Sighting | None = None  # another's lease, and since when it has not beaten
        self.lease: Lease | None = None

    def try_lead(self) -> bool:
        """Take the lease if it is free, or if whoever has it is dead. Blocks on the database."""
        if self.lease is not None:
            return True
        self.lease = self._registry.leases.acquire(self._name, self._holder)
        if self.lease is None:
            self._take_over_if_dead()
        return self.lease is not None

    def _take_over_if_dead(self) -> None:
        now = self._monotonic()
        self._sighting = sight(self._sighting, self._registry.leases.get(self._name), now)
        if self._sighting is None:
            return
        other = self._sighting.lease
        if decide(self._sighting, now, self._term, holder_is_dead=is_known_dead(other.holder)) is Move.TAKE:
            self.lease = self._registry.leases.acquire(self._name, self._holder, seen=other)

    @property
    def is_led_elsewhere(self) -> bool:
        """Whether a living process of another machine, or of another container, leads, as far as was seen."""
        if self.lease is not None or self._sighting is None:
            return False
        return is_elsewhere(self._sighting.lease.holder)

    def acting(self) -> Registry:
        """The registry on this lease's authority: each write checks it."""
        assert self.lease is not None
        origin = Origin(ACTOR, authority=self.lease.authority)
        return self._registry.acting(origin)

    async def keep(self) -> None:
        """Beat until the lease is lost; then return."""
        while self.lease is not None:
            await asyncio.sleep(self._term / _BEATS_PER_TERM)
            if self.lease is None:
                return
            with suppress(Unavailable):  # without a database nobody else can take it, either
                held = await asyncio.to_thread(self._registry.leases.beat, [self.lease])
                self.lease = held[0] if held else None

    def lose(self) -> None:
        """Stop claiming it; another has it."""
        self.lease = None
        self._sighting = None

    def resign(self) -> None:
        """Free it, so that another takes it at once. Blocks on the database."""
        if self.lease is not None:
            with suppress(Unavailable):
                self._registry.leases.release(self.lease)
            self.lease = None
