"""An event stream in memory: for simulations, and for tests of what is not about the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from registry.errors import BrokerUnavailable
from registry.values import Event
from triggers.bus import Condition, Outcome, Stored, Stream, StreamState
from triggers.errors import StreamAhead
from triggers.tasks import wait_for_event


@dataclass
class _Log:
    events: list[Event] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    floors: dict[str, int] = field(default_factory=dict)  # reader -> events that it has acknowledged
    news: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryBus:
    """`Bus` with the rules of a Limits stream that never forgets an id."""

    def __init__(self) -> None:
        self.logs: dict[Stream, _Log] = {}

    async def state(self, stream: Stream) -> StreamState:
        log = self.logs.get(stream)
        if log is None:
            return StreamState(Condition.ABSENT)
        if self._newest(stream) > stream.incarnation:
            return StreamState(Condition.ASIDE)
        if not log.events:
            return StreamState(Condition.EMPTY)
        return StreamState(Condition.FILLED, _stored(log.events[-1]))

    async def create(self, stream: Stream) -> None:
        newest = self._newest(stream)
        if newest > stream.incarnation:
            raise StreamAhead(f"Incarnation {newest} of the event stream is there already.")
        self.logs.setdefault(stream, _Log())

    def _newest(self, stream: Stream) -> int:
        """The highest incarnation that there is of the stream's database."""
        return max((s.incarnation for s in self.logs if s.database_id == stream.database_id), default=0)

    async def publish(self, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        log = self.logs.get(stream)
        if log is None or self._newest(stream) > stream.incarnation:
            return Outcome.ABSENT
        if event.id in log.ids:
            return Outcome.DUPLICATE
        last = log.events[-1].id if log.events else None
        if last != after:
            return Outcome.REFUSED
        log.events.append(event)
        log.ids.add(event.id)
        log.news.set()
        return Outcome.STORED

    async def find(self, stream: Stream, sequence: int) -> Stored | None:
        log = self.logs.get(stream)
        events = log.events if log else []
        return next((_stored(event) for event in events if event.sequence == sequence), None)

    async def reader(self, stream: Stream, consumer: str, *, after: int) -> MemoryReader:
        log = self.logs.get(stream)
        if log is None:
            raise BrokerUnavailable(f"The event stream '{stream.name}' is not there.")
        log.floors.setdefault(consumer, sum(event.sequence <= after for event in log.events))
        return MemoryReader(self, stream, consumer)

    async def close(self) -> None:
        """Nothing is held."""


class MemoryReader:
    def __init__(self, bus: MemoryBus, stream: Stream, consumer: str) -> None:
        self._bus = bus
        self._stream = stream
        self._consumer = consumer
        self._given = self._log().floors[consumer]

    async def fetch(self, limit: int, timeout: float) -> Sequence[Event]:
        log = self._log()
        if len(log.events) <= self._given:
            log.news.clear()
            if not await wait_for_event(log.news, timeout):
                return []
        events = self._log().events[self._given : self._given + limit]
        self._given += len(events)
        return events

    async def acknowledge(self) -> None:
        self._log().floors[self._consumer] = self._given

    async def close(self) -> None:
        """Nothing is held."""

    def _log(self) -> _Log:
        log = self._bus.logs.get(self._stream)
        if log is None:
            raise BrokerUnavailable(f"The event stream '{self._stream.name}' is gone.")
        return log


def _stored(event: Event) -> Stored:
    return Stored(event.sequence, event.id)
