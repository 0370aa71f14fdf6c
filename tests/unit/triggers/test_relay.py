"""The relay's decisions, and its work against a stream in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from registry import crashpoints
from registry.errors import BrokerUnavailable
from registry.store.stored import StoredRegistry
from registry.values import Event, StreamPosition
from tests.common.loops import eventually
from tests.common.outbox import emit_promotion, open_registry
from tests.unit.triggers.bus_suite import event
from triggers.bus import Condition, Outcome, Stored, Stream, StreamState
from triggers.errors import StreamAhead
from triggers.memory import MemoryBus
from triggers.relay import Step, confirmed, decide, run_relay


def position(relayed: int, newest: int = 9) -> StreamPosition:
    return StreamPosition("db", 1, relayed, f"id-{relayed}" if relayed else None, newest)


def filled(sequence: int) -> StreamState:
    return StreamState(Condition.FILLED, Stored(sequence, f"id-{sequence}"))


@pytest.mark.parametrize(
    ("relayed", "state", "known", "step"),
    [
        (0, StreamState(Condition.ABSENT), None, Step.CREATE),
        (4, StreamState(Condition.ABSENT), None, Step.BEGIN_ANEW),
        (0, StreamState(Condition.EMPTY), None, Step.PUBLISH),
        (4, StreamState(Condition.EMPTY), None, Step.BEGIN_ANEW),
        (4, StreamState(Condition.FOREIGN), None, Step.BEGIN_ANEW),
        (4, filled(4), "id-4", Step.PUBLISH),
        (4, filled(6), "id-6", Step.CATCH_UP),
        (0, filled(1), "id-1", Step.CATCH_UP),
        (4, filled(3), "id-3", Step.BEGIN_ANEW),
        (4, filled(12), None, Step.STOP),
        (4, filled(6), "another", Step.STOP),
        (0, StreamState(Condition.ASIDE), None, Step.SUPERSEDED),
        (4, StreamState(Condition.ASIDE), None, Step.SUPERSEDED),
    ],
)
def test_each_situation_has_its_answer(
    relayed: int, state: StreamState, known: str | None, step: Step
) -> None:
    assert decide(position(relayed), state, known) is step


def test_of_a_window_only_what_lies_before_the_first_refusal_is_confirmed() -> None:
    events = [event(n) for n in range(1, 5)]
    outcomes = [Outcome.STORED, Outcome.DUPLICATE, Outcome.REFUSED, Outcome.STORED]
    assert confirmed(events, outcomes) == events[:2]
    assert confirmed(events, [Outcome.STORED] * 4) == events


class Reports(list[tuple[str, bool]]):
    """Keeps what was reported."""

    def __call__(self, line: str, *, healthy: bool = True) -> None:
        self.append((line, healthy))

    @property
    def unhealthy(self) -> list[str]:
        return [line for line, healthy in self if not healthy]


@asynccontextmanager
async def relaying(registry: StoredRegistry, bus: MemoryBus) -> AsyncIterator[Reports]:
    stop, reports = asyncio.Event(), Reports()
    task = asyncio.create_task(run_relay(registry, bus, stop, reports))
    try:
        yield reports
    finally:
        stop.set()
        await task


def stream_of(registry: StoredRegistry) -> Stream:
    at = registry.events.position()
    return Stream(at.database_id, at.incarnation)


def in_stream(registry: StoredRegistry, bus: MemoryBus) -> list[Event]:
    log = bus.logs.get(stream_of(registry))
    return list(log.events) if log else []


def outbox(registry: StoredRegistry) -> list[Event]:
    return registry.events.after(0, limit=10_000)


async def all_relayed(registry: StoredRegistry, bus: MemoryBus) -> None:
    await eventually(lambda: in_stream(registry, bus) == outbox(registry), what="stream equals outbox")


def test_every_event_of_the_outbox_comes_into_the_stream_in_order(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = MemoryBus()
        for n in range(600):
            emit_promotion(registry, f"name-{n % 7}", n + 1)
        async with relaying(registry, bus):
            await all_relayed(registry, bus)
            emit_promotion(registry, version=999)
            await all_relayed(registry, bus)
            newest = registry.events.position().newest
            await eventually(lambda: registry.events.position().relayed == newest)

    asyncio.run(scenario())


@pytest.mark.parametrize("point", ["relay.claimed", "relay.created", "relay.published", "relay.marked"])
def test_a_relay_that_dies_anywhere_leaves_the_next_one_nothing_to_repair(
    registry: StoredRegistry, point: str
) -> None:
    class Killed(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Killed

    async def scenario() -> None:
        bus = MemoryBus()
        for n in range(5):
            emit_promotion(registry, version=n + 1)
        with crashpoints.observed_by(die), suppress(Killed):
            async with asyncio.timeout(20):
                await run_relay(registry, bus, asyncio.Event(), Reports())
        emit_promotion(registry, version=9)
        async with relaying(registry, bus):
            await all_relayed(registry, bus)

    asyncio.run(scenario())


def test_a_lost_stream_is_filled_again_in_a_new_incarnation(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = MemoryBus()
        for n in range(3):
            emit_promotion(registry, version=n + 1)
        async with relaying(registry, bus):
            await all_relayed(registry, bus)
            await eventually(lambda: registry.events.position().relayed == 3)
        bus.logs.clear()
        emit_promotion(registry, version=4)
        async with relaying(registry, bus) as reports:
            await eventually(lambda: registry.events.position().incarnation == 2)
            await all_relayed(registry, bus)
        assert any("lost events" in line for line in reports.unhealthy)

    asyncio.run(scenario())


def test_a_stream_that_lost_its_end_is_replaced_while_the_relay_runs(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = MemoryBus()
        async with relaying(registry, bus):
            for n in range(3):
                emit_promotion(registry, version=n + 1)
            await eventually(lambda: registry.events.position().relayed == 3)
            lost = bus.logs[stream_of(registry)]
            lost.ids.discard(lost.events.pop().id)
            emit_promotion(registry, version=4)
            await eventually(lambda: registry.events.position().incarnation == 2)
            await all_relayed(registry, bus)

    asyncio.run(scenario())


def test_a_stream_ahead_of_a_restored_database_stops_the_relay_until_a_person_decides(
    tmp_path: Path, registry: StoredRegistry
) -> None:
    async def scenario() -> None:
        bus = MemoryBus()
        stream = stream_of(registry)
        emit_promotion(registry, version=1)
        async with relaying(registry, bus):
            await all_relayed(registry, bus)
        mine = in_stream(registry, bus)[-1]
        later = [event(n, id=f"lost-{n}") for n in (2, 3)]
        await bus.publish(stream, later[0], after=mine.id)
        await bus.publish(stream, later[1], after=later[0].id)
        with pytest.raises(StreamAhead, match=r"ends with event 3 \(lost-3\)"):
            await run_relay(registry, bus, asyncio.Event(), Reports())
        emit_promotion(registry, version=2)
        with pytest.raises(StreamAhead):
            await run_relay(registry, bus, asyncio.Event(), Reports())
        assert len(bus.logs[stream].events) == 3
        registry.events.begin_incarnation()
        async with relaying(registry, bus):
            await all_relayed(registry, bus)

    asyncio.run(scenario())


def test_a_database_restored_to_an_earlier_incarnation_stops_the_relay(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = MemoryBus()
        emit_promotion(registry, version=1)
        async with relaying(registry, bus):
            await all_relayed(registry, bus)
            await eventually(lambda: registry.events.position().relayed == 1)
        await bus.create(Stream(stream_of(registry).database_id, 2))
        emit_promotion(registry, version=2)
        with pytest.raises(StreamAhead, match="put aside for a later incarnation"):
            async with asyncio.timeout(20):
                await run_relay(registry, bus, asyncio.Event(), Reports())
        assert registry.events.position().relayed == 1

    asyncio.run(scenario())


class Contrary(MemoryBus):
    """Says that the stream is there, and takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def publish(self, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        self.asked += 1
        return Outcome.ABSENT


def test_a_stream_that_takes_nothing_is_not_asked_without_a_pause(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = Contrary()
        emit_promotion(registry, version=1)
        async with relaying(registry, bus):
            await eventually(lambda: bus.asked >= 3)
            before = bus.asked
            await asyncio.sleep(0.3)
            assert bus.asked - before <= 3

    asyncio.run(scenario())


class Gone(MemoryBus):
    """Cannot be reached."""

    async def state(self, stream: Stream) -> StreamState:
        raise BrokerUnavailable("It is gone.")


def test_what_is_said_of_a_broker_that_is_gone_names_what_waits(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        async with relaying(registry, Gone()) as reports:
            await eventually(lambda: "nothing is relayed, events will wait: It is gone." in reports.unhealthy)
            emit_promotion(registry, version=1)
            await eventually(lambda: "nothing is relayed, 1 events wait: It is gone." in reports.unhealthy)

    asyncio.run(scenario())


def test_two_relays_leave_one_stream_without_a_repeat(tmp_path: Path, registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = MemoryBus()
        other = open_registry(tmp_path)
        async with relaying(registry, bus), relaying(other, bus):
            for n in range(30):
                emit_promotion(registry, version=n + 1)
                await asyncio.sleep(0)
            await all_relayed(registry, bus)
        other.close()

    asyncio.run(scenario())


class Flaky(MemoryBus):
    """Loses every third answer, after or before the effect."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def publish(self, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        self.calls += 1
        if self.calls % 3 == 1:
            raise BrokerUnavailable("lost on the way there")
        outcome = await super().publish(stream, event, after=after)
        if self.calls % 3 == 2:
            raise BrokerUnavailable("lost on the way back")
        return outcome


def test_lost_requests_and_lost_answers_neither_lose_nor_repeat_an_event(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        bus = Flaky()
        for n in range(40):
            emit_promotion(registry, version=n + 1)
        async with relaying(registry, bus) as reports:
            await all_relayed(registry, bus)
        assert reports.unhealthy

    asyncio.run(scenario())
