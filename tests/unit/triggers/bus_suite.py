"""What every `Bus` must do. The subclasses say which one: in memory here, JetStream in integration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from registry.errors import BrokerUnavailable
from registry.values import Event
from triggers.bus import Bus, Condition, Outcome, Stored, Stream, StreamState
from triggers.errors import StreamAhead

STREAM = Stream("abc123", 1)


def event(sequence: int, *, id: str | None = None, key: str = "support-bot") -> Event:
    return Event(
        sequence=sequence,
        id=id or f"event-{sequence}",
        type="podium.alias.promoted",
        subject=f"{key}:production",
        key=key,
        at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        actor="user:ada",
        data={"artifact": key, "to_version": sequence},
        correlation=f"event-{sequence}",
    )


async def fill(bus: Bus, count: int, *, stream: Stream = STREAM, start: int = 1) -> list[Event]:
    """Publish ``count`` events in order."""
    events = [event(n) for n in range(start, start + count)]
    last = None if start == 1 else f"event-{start - 1}"
    for each in events:
        assert await bus.publish(stream, each, after=last) is Outcome.STORED
        last = each.id
    return events


class BusSuite:
    """Mixed into test classes whose fixture ``bus`` runs a scenario on a bus of its own."""

    @pytest.fixture
    def bus(self, request: pytest.FixtureRequest) -> Callable[[Callable[[Bus], Awaitable[None]]], None]:
        raise NotImplementedError

    def test_a_stream_that_was_not_made_is_absent(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            assert await bus.state(STREAM) == StreamState(Condition.ABSENT)
            assert await bus.publish(STREAM, event(1), after=None) is Outcome.ABSENT
            assert await bus.find(STREAM, 1) is None

        bus(scenario)

    def test_a_new_stream_is_empty_and_making_it_again_changes_nothing(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            assert await bus.state(STREAM) == StreamState(Condition.EMPTY)
            await fill(bus, 1)
            await bus.create(STREAM)
            assert await bus.state(STREAM) == StreamState(Condition.FILLED, Stored(1, "event-1"))

        bus(scenario)

    def test_a_message_is_stored_only_behind_the_one_it_names(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            assert await bus.publish(STREAM, event(2), after="event-1") is Outcome.REFUSED
            await fill(bus, 2)
            assert await bus.publish(STREAM, event(4), after="event-3") is Outcome.REFUSED
            assert await bus.publish(STREAM, event(3), after="event-1") is Outcome.REFUSED
            assert await bus.publish(STREAM, event(3), after=None) is Outcome.REFUSED
            assert await bus.state(STREAM) == StreamState(Condition.FILLED, Stored(2, "event-2"))

        bus(scenario)

    def test_a_message_that_is_there_already_is_not_stored_again(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            await fill(bus, 2)
            again = await bus.publish(STREAM, event(2), after="event-1")
            assert again in (Outcome.DUPLICATE, Outcome.REFUSED)
            assert await bus.state(STREAM) == StreamState(Condition.FILLED, Stored(2, "event-2"))

        bus(scenario)

    def test_messages_sent_at_once_in_a_chain_arrive_in_its_order(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            chain = [event(n) for n in range(1, 51)]
            before = [None, *(each.id for each in chain)]
            sends = [bus.publish(STREAM, e, after=b) for e, b in zip(chain, before, strict=False)]
            assert set(await asyncio.gather(*sends)) == {Outcome.STORED}
            reader = await bus.reader(STREAM, "reader", after=0)
            assert list(await take(reader, 50)) == chain
            await reader.close()

        bus(scenario)

    def test_an_event_is_found_by_its_sequence(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            first = event(11)
            await bus.publish(STREAM, first, after=None)
            await bus.publish(STREAM, event(12), after=first.id)
            assert await bus.find(STREAM, 11) == Stored(11, "event-11")
            assert await bus.find(STREAM, 10) is None
            assert await bus.find(STREAM, 13) is None

        bus(scenario)

    def test_events_come_out_as_they_went_in(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            odd = replace(
                event(1, key="run/7.x *>"),
                actor='user:Ådä "x" 100%',
                causation="c1",
                traceparent="00-1-2-01",
                data={"text": "naïve\n\r\0☃"},
            )
            await bus.publish(STREAM, odd, after=None)
            reader = await bus.reader(STREAM, "reader", after=0)
            assert await take(reader, 1) == [odd]
            await reader.close()

        bus(scenario)

    def test_a_reader_begins_behind_the_sequence_it_names(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            events = await fill(bus, 4)
            reader = await bus.reader(STREAM, "late", after=2)
            assert await take(reader, 2) == events[2:]
            await reader.close()

        bus(scenario)

    def test_a_reader_waits_for_what_is_published_later(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            reader = await bus.reader(STREAM, "reader", after=0)
            assert list(await reader.fetch(10, 0.05)) == []
            waiting = asyncio.create_task(reader.fetch(10, 10))
            await asyncio.sleep(0)
            events = await fill(bus, 1)
            assert list(await waiting) == events
            await reader.close()

        bus(scenario)

    def test_a_durable_reader_goes_on_behind_what_it_acknowledged(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            events = await fill(bus, 3)
            first = await bus.reader(STREAM, "apps/one.two", after=0)
            assert await take(first, 2, limit=2) == events[:2]
            await first.acknowledge()
            await first.close()
            second = await bus.reader(STREAM, "apps/one.two", after=0)
            assert await take(second, 1) == events[2:]
            await second.close()

        bus(scenario)

    def test_reading_a_stream_that_is_not_there_is_an_error(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            with pytest.raises(BrokerUnavailable, match=STREAM.name):
                await bus.reader(STREAM, "reader", after=0)

        bus(scenario)

    def test_a_new_incarnation_begins_empty_and_does_not_mix_with_the_old(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            await fill(bus, 2)
            second = Stream(STREAM.database_id, 2)
            await bus.create(second)
            assert await bus.state(second) == StreamState(Condition.EMPTY)
            await fill(bus, 3, stream=second)
            assert (await bus.state(STREAM)).condition is Condition.ASIDE
            assert await bus.publish(STREAM, event(3), after="event-2") is Outcome.ABSENT
            third = Stream(STREAM.database_id, 3)
            await bus.create(third)
            assert await bus.state(third) == StreamState(Condition.EMPTY)

        bus(scenario)

    def test_an_incarnation_below_one_that_exists_is_not_made(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(Stream(STREAM.database_id, 2))
            with pytest.raises(StreamAhead):
                await bus.create(STREAM)

        bus(scenario)

    def test_databases_do_not_see_each_other(self, bus: Any) -> None:
        async def scenario(bus: Bus) -> None:
            await bus.create(STREAM)
            await bus.create(Stream("other", 1))
            await fill(bus, 1)
            assert await bus.state(Stream("other", 1)) == StreamState(Condition.EMPTY)

        bus(scenario)


async def take(reader: Any, count: int, *, limit: int = 100) -> list[Event]:
    """Read until ``count`` events have come."""
    events: list[Event] = []
    while len(events) < count:
        came = await reader.fetch(limit, 5)
        assert came, f"only {len(events)} of {count} came"
        events += came
    return events
