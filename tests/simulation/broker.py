"""The broker of a world: a stream in memory behind a connection that can fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from registry.errors import BrokerUnavailable
from registry.values import Event
from tests.simulation.process import Process
from triggers.bus import Outcome, Stored, Stream, StreamState
from triggers.memory import MemoryBus, MemoryReader

if TYPE_CHECKING:
    from tests.simulation.world import World


class SharedBus:
    """One process's way to the world's broker. Every call may fail before or after its effect."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world: World = process.world
        self._bus: MemoryBus = process.world.bus

    async def state(self, stream: Stream) -> StreamState:
        await self._go()
        state = await self._bus.state(stream)
        await self._return()
        return state

    async def create(self, stream: Stream) -> None:
        await self._go()
        await self._bus.create(stream)
        await self._return()

    async def publish(self, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        await self._go()
        if self._world.happens(self._world.faults.publish_late):
            # The client library keeps it while it reconnects, and sends it then.
            self._world.later(lambda: self._bus.publish(stream, event, after=after))
            raise BrokerUnavailable("The connection was lost; simulated.")
        self._world.forget_some_ids(stream)
        outcome = await self._bus.publish(stream, event, after=after)
        await self._return()
        return outcome

    async def find(self, stream: Stream, sequence: int) -> Stored | None:
        await self._go()
        found = await self._bus.find(stream, sequence)
        await self._return()
        return found

    async def reader(self, stream: Stream, consumer: str, *, after: int) -> SharedReader:
        await self._go()
        reader = await self._bus.reader(stream, consumer, after=after)
        await self._return()
        return SharedReader(self, reader)

    async def close(self) -> None:
        self._process.check()

    async def _go(self) -> None:
        await self._process.step()
        self._maybe_fail("on the way there")

    async def _return(self) -> None:
        await self._process.step()
        self._maybe_fail("on the way back")

    def _maybe_fail(self, where: str) -> None:
        if self._world.happens(self._world.faults.broker_away):
            raise BrokerUnavailable(f"The event server did not answer: lost {where}; simulated.")


class SharedReader:
    """A durable reader that gives some events again, as after an acknowledgement that was lost."""

    def __init__(self, bus: SharedBus, reader: MemoryReader) -> None:
        self._bus = bus
        self._reader = reader

    async def fetch(self, limit: int, timeout: float) -> Sequence[Event]:
        await self._bus._go()
        events = list(await self._reader.fetch(limit, timeout))
        await self._bus._return()
        if events and self._bus._world.happens(self._bus._world.faults.deliver_twice):
            self._reader._given = max(0, self._reader._given - self._bus._world.random.randrange(1, 5))
        return events

    async def acknowledge(self) -> None:
        await self._bus._process.step()
        if not self._bus._world.happens(self._bus._world.faults.deliver_twice):
            await self._reader.acknowledge()

    async def close(self) -> None:
        self._bus._process.check()
