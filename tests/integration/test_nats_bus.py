"""JetStream keeps the rules of the port, and what only a real server can show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from registry.errors import BrokerUnavailable
from tests.common.loops import eventually
from tests.common.services import NatsServer
from tests.unit.triggers.bus_suite import STREAM, BusSuite, event, fill, take
from triggers.bus import Bus, Condition, Outcome, Stored, StreamState
from triggers.connection import Address, Connection
from triggers.jetstream import JetStreamBus

pytestmark = pytest.mark.integration

Scenario = Callable[[JetStreamBus], Awaitable[None]]


def run(server: NatsServer, scenario: Scenario) -> None:
    async def connected() -> None:
        bus = JetStreamBus(Connection(lambda: Address(server.url)))
        try:
            await scenario(bus)
        finally:
            await bus.close()

    asyncio.run(connected())


class TestJetStreamBus(BusSuite):
    @pytest.fixture
    def bus(self, nats_server: NatsServer) -> Callable[[Callable[[Bus], Awaitable[None]]], None]:
        return lambda scenario: run(nats_server, scenario)


def test_what_was_acknowledged_survives_a_kill_of_the_server(nats_server: NatsServer) -> None:
    async def scenario(bus: JetStreamBus) -> None:
        await bus.create(STREAM)
        await fill(bus, 20)
        await restart(nats_server)
        await eventually(lambda: is_connected(bus))
        assert await bus.state(STREAM) == StreamState(Condition.FILLED, Stored(20, "event-20"))
        repeated = await bus.publish(STREAM, event(20), after="event-19")
        assert repeated in (Outcome.DUPLICATE, Outcome.REFUSED)
        assert await bus.publish(STREAM, event(21), after="event-20") is Outcome.STORED

    run(nats_server, scenario)


def test_a_reader_goes_on_after_the_server_was_killed_while_it_waited(nats_server: NatsServer) -> None:
    async def scenario(bus: JetStreamBus) -> None:
        await bus.create(STREAM)
        reader = await bus.reader(STREAM, "reader", after=0)
        waiting = asyncio.create_task(reader.fetch(10, 30))
        await asyncio.sleep(0)
        await restart(nats_server)
        await eventually(lambda: is_connected(bus))
        events = await fill(bus, 1)
        assert list(await asyncio.wait_for(waiting, 20)) == events
        await reader.close()

    run(nats_server, scenario)


def test_a_message_of_somebody_else_makes_the_stream_foreign_and_is_passed_over_by_readers(
    nats_server: NatsServer,
) -> None:
    async def scenario(bus: JetStreamBus) -> None:
        await bus.create(STREAM)
        events = await fill(bus, 1)
        client = await bus.connection.client()
        await client.jetstream().publish(f"podium.{STREAM.database_id}.intruder", b"?")
        assert (await bus.state(STREAM)).condition is Condition.FOREIGN
        assert await bus.publish(STREAM, event(2), after="event-1") is Outcome.REFUSED
        reader = await bus.reader(STREAM, "reader", after=0)
        assert await take(reader, 1) == events
        await reader.close()

    run(nats_server, scenario)


def test_the_stream_forgets_its_oldest_events_at_its_bound_and_goes_on(nats_server: NatsServer) -> None:
    async def scenario(bus: JetStreamBus) -> None:
        small = JetStreamBus(bus.connection, stream_bytes=16 * 1024)
        await small.create(STREAM)
        await fill(small, 100)
        assert await small.find(STREAM, 1) is None
        assert await small.find(STREAM, 99) == Stored(99, "event-99")

    run(nats_server, scenario)


async def restart(server: NatsServer) -> None:
    """Kill and start it again, in a thread: this loop has to see that the connection is lost."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def is_connected(bus: JetStreamBus) -> bool:
    try:
        await bus.connection.client()
    except BrokerUnavailable:
        return False
    return True
