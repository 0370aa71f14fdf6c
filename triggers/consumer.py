"""From the stream into the database: which events have come, and which deliveries follow from them.

The stream only carries; the truth about what was handled is in the database. A consumer remembers there
up to which sequence it has recorded everything, so what the stream repeats (after a lost acknowledgement, or
in a new incarnation that is filled again) is passed over, and what it has left out is read from the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from registry.crashpoints import reached
from registry.deliveries import Delivery
from registry.errors import BrokerUnavailable, DatabaseUnavailable, StaleAuthority
from registry.protocol import Registry
from registry.services import Report
from registry.values import Event, Lease, Origin
from triggers.bus import Bus, Reader, Stream
from triggers.calls import Threads
from triggers.executor import Executor
from triggers.leadership import Leadership
from triggers.served import Served, arrivals
from triggers.tasks import first_of

ACTOR = "system:events"

_FETCH = 200  # events at once
_FETCH_SECONDS = 2.0  # then deploys are noticed that no event has followed
_MOST_MISSING = 1000  # events read from the outbox at once
_UNRECORDED = 200  # events that led to no delivery, before the cursor is written all the same
_DRAIN_SECONDS = 10.0
_RETRY_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)

#: Gives what is to be served now; the same object as before when nothing has changed.
Find = Callable[[], Sequence[Served]]


def sift(cursor: int, events: Sequence[Event]) -> tuple[list[Event], bool]:
    """What of a batch is new, in order, and whether events are missing before or within it."""
    fresh = sorted({e.sequence: e for e in events if e.sequence > cursor}.values(), key=lambda e: e.sequence)
    complete = all(event.sequence == cursor + i for i, event in enumerate(fresh, start=1))
    return fresh, not complete


@dataclass
class Roster:
    """What a consumer serves, kept in step with what is deployed."""

    registry: Registry
    consumer: str
    find: Find
    served: Mapping[str, Served] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    _found: Sequence[Served] | None = None

    def refresh(self) -> bool:
        """Look at what is deployed; whether anything has changed."""
        found = self.find()
        if found is self._found:
            return False
        wanted = {each.name: each.since for each in found}
        self.since = self.registry.deliveries.serve(self.consumer, wanted)
        self.served = {each.name: each for each in found}
        self._found = found
        return True


class Consumer:
    """Records and executes one consumer's deliveries, under its lease."""

    def __init__(
        self,
        registry: Registry,
        bus: Bus,
        name: str,
        find: Find,
        lease: Lease,
        *,
        calls: Threads,
        report: Report,
    ) -> None:
        self._registry = registry.acting(Origin(ACTOR, authority=lease.authority))
        self._bus = bus
        self._name = name
        self._lease = lease
        self._calls = calls
        self._report = report
        self._roster = Roster(self._registry, name, find)
        self._executor = Executor(self._registry, name, lease, lambda: self._roster.served, calls=calls)
        self._cursor = 0  # everything up to here was looked at
        self._recorded = 0  # the database says so up to here
        self._last: Event | None = None  # the event at the cursor, once one was read

    async def run(self, stop: asyncio.Event) -> None:
        """Read and execute until ``stop``, or until cancelled because the lease is lost.

        After ``stop`` nothing new is started, and handlers that run have some seconds to end.

        Raises:
            DatabaseUnavailable: the end of a delivery could not be written for a minute.
        """
        await self._calls(self._open)
        tasks = [asyncio.create_task(work) for work in (self._read(), self._executor.run(), stop.wait())]
        try:
            await first_of(*tasks)
        finally:
            if stop.is_set():
                await self._executor.drain(_DRAIN_SECONDS)

    def _open(self) -> None:
        self._roster.refresh()
        self._cursor = self._recorded = self._registry.deliveries.cursor(self._name)

    async def _read(self) -> None:
        failures = 0
        while True:
            try:
                await self._read_stream()
                failures = 0
            except (BrokerUnavailable, DatabaseUnavailable, StaleAuthority) as error:
                # StaleAuthority: another incarnation has begun, or the stream is ahead of the database. When
                # it is the lease that was lost, whoever beats it ends this.
                self._report(f"waiting: {error}", healthy=False)
                await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
                failures += 1

    async def _read_stream(self) -> None:
        """Read the stream of the present incarnation until something fails."""
        position = await self._calls(self._registry.events.position)
        stream = Stream(position.database_id, position.incarnation)
        await self._catch_up(position.relayed)
        reader = await self._bus.reader(stream, self._name, after=self._cursor)
        try:
            self._report(f"{len(self._roster.served)} served from {stream.name}")
            while True:
                events = await reader.fetch(_FETCH, _FETCH_SECONDS)
                await self._take(events, stream.incarnation)
                await self._tidy(reader, stream, idle=not events)
        finally:
            with suppress(BrokerUnavailable):
                await reader.close()

    async def _catch_up(self, relayed: int) -> None:
        """Take from the outbox what the stream has carried before, and perhaps no longer does."""
        while self._cursor < relayed:
            events = await self._calls(lambda: self._registry.events.after(self._cursor, limit=_FETCH))
            events = [event for event in events if event.sequence <= relayed]
            if not events:
                return
            await self._take(events, None)

    async def _take(self, events: Sequence[Event], incarnation: int | None) -> None:
        if events:
            await self._executor.start_claimed_by(lambda free: self._record(events, incarnation, free))

    def _record(self, events: Sequence[Event], incarnation: int | None, free: int) -> list[Delivery]:
        """Write what follows from events, and claim at once what may start: one transaction for both."""
        if self._roster.refresh():
            self._cursor = self._recorded = self._registry.deliveries.cursor(self._name)
        fresh, has_gap = sift(self._cursor, events)
        if has_gap:
            # Not all of a large gap at once: the rest is found missing again, or when nothing more comes.
            count = min(_MOST_MISSING, fresh[-1].sequence - self._cursor)
            fresh = self._registry.events.after(self._cursor, limit=count)
        if not fresh:
            return []
        new = arrivals(fresh, list(self._roster.served.values()), self._roster.since)
        claimed: list[Delivery] = []
        if new or fresh[-1].sequence - self._recorded >= _UNRECORDED:
            deliveries = self._registry.deliveries
            with self._registry.transaction():
                deliveries.record(self._name, new, upto=fresh[-1], incarnation=incarnation)
                if new and free > 0:
                    claimed = deliveries.claim(self._name, epoch=self._lease.epoch, limit=free)
            self._recorded = fresh[-1].sequence
            reached("delivery.recorded")
        self._cursor = fresh[-1].sequence
        self._last = fresh[-1]
        return claimed

    async def _tidy(self, reader: Reader, stream: Stream, *, idle: bool) -> None:
        """Acknowledge what is recorded. When nothing comes, record how far everything was read."""
        if idle:
            await self._calls(lambda: self._settle(stream.incarnation))
            position = await self._calls(self._registry.events.position)
            if position.incarnation != stream.incarnation:
                raise BrokerUnavailable("Another incarnation of the stream has begun.")
            await self._catch_up(position.relayed)
        if self._recorded == self._cursor:
            await reader.acknowledge()

    def _settle(self, incarnation: int) -> None:
        if self._roster.refresh():
            self._cursor = self._recorded = self._registry.deliveries.cursor(self._name)
        elif self._last is not None and self._recorded < self._cursor:
            self._registry.deliveries.record(self._name, [], upto=self._last, incarnation=incarnation)
            self._recorded = self._cursor


def lease_name(consumer: str) -> str:
    return f"consumer/{consumer}"


async def run_consumer(
    registry: Registry, bus: Bus, name: str, find: Find, stop: asyncio.Event, report: Report
) -> None:
    """Serve a consumer's subscriptions whenever this process leads it, until ``stop``.

    ``find`` is called often, in a thread; it gives the same object while nothing has changed.
    """
    lease_calls, calls = Threads(f"lease-{name}"), Threads(f"consumer-{name}", 2)
    term = registry.settings.lease_seconds
    leadership = Leadership(registry.leases, lease_name(name), term=term, calls=lease_calls)

    async def work(lease: Lease) -> None:
        with suppress(StaleAuthority):
            await Consumer(registry, bus, name, find, lease, calls=calls, report=report).run(stop)

    try:
        await leadership.lead(stop, work)
    finally:
        lease_calls.close()
        calls.close()
