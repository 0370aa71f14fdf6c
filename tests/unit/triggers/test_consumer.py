"""From committed events to handlers: once for each event and subscription, in order, and not lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from registry import crashpoints
from registry.database.statements import sql
from registry.deliveries import DeliveryState
from registry.errors import AliasHeld, GateFailed
from registry.events import AliasMoved, EventType
from registry.store.stored import StoredRegistry
from registry.values import Event
from tests.common.loops import eventually
from tests.common.outbox import emit_promotion, open_registry, promoted, write
from tests.unit.triggers.bus_suite import event
from triggers.bus import Stream
from triggers.causation import actors_behind
from triggers.consumer import run_consumer, sift
from triggers.context import Context
from triggers.errors import DeliveryRefused
from triggers.filters import OnPromotion
from triggers.memory import MemoryBus
from triggers.received import Received
from triggers.relay import run_relay
from triggers.served import Served, serve_subscription
from triggers.subscription import subscribe

APP = "support"
_SERVED = sql("SELECT name FROM subscription WHERE consumer = :consumer")


def quiet(line: str, *, healthy: bool = True) -> None:
    """Nobody listens to the report."""


def served(handler: Callable[..., Any], **options: Any) -> Served:
    on = options.pop("on", OnPromotion())
    return serve_subscription(APP, subscribe(on, name="watch", **options)(handler))


@asynccontextmanager
async def running(
    registry: StoredRegistry, bus: MemoryBus, *subscriptions: Served, consumer: str = "test"
) -> AsyncIterator[None]:
    """A relay and a consumer of these subscriptions."""
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(run_relay(registry, bus, stop, quiet)),
        asyncio.create_task(run_consumer(registry, bus, consumer, lambda: subscriptions, stop, quiet)),
    ]
    names = {each.name for each in subscriptions}
    try:
        await eventually(lambda: names <= served_names(registry, consumer) or any(t.done() for t in tasks))
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def served_names(registry: StoredRegistry, consumer: str) -> set[str]:
    with registry._session.reading() as reader:
        rows = reader.all(_SERVED, consumer=consumer)
    return {str(row[0]) for row in rows}


def states(registry: StoredRegistry) -> list[DeliveryState]:
    return [d.state for d in reversed(registry.deliveries.find())]


def test_a_handler_gets_each_event_once_with_typed_data(registry: StoredRegistry) -> None:
    seen: list[tuple[str, int, str | None]] = []

    def handler(event: Received[AliasMoved], context: Context) -> None:
        seen.append((event.data.artifact, event.data.to_version, event.ref))

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler)):
            for n in (1, 2, 3):
                emit_promotion(registry, "a", n)
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 3)

    asyncio.run(scenario())
    assert seen == [("a", n, f"a:v{n}") for n in (1, 2, 3)]


def test_an_async_handler_runs_too(registry: StoredRegistry) -> None:
    seen: list[int] = []

    async def handler(event: Received[AliasMoved], context: Context) -> None:
        await asyncio.sleep(0)
        seen.append(event.data.to_version)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler)):
            emit_promotion(registry, "a", 5)
            await eventually(lambda: states(registry) == [DeliveryState.DONE])

    asyncio.run(scenario())
    assert seen == [5]


def test_events_that_do_not_match_lead_to_nothing_but_are_passed(registry: StoredRegistry) -> None:
    async def scenario() -> None:
        only_b = served(lambda event, context: None, on=OnPromotion("b"))
        async with running(registry, MemoryBus(), only_b):
            emit_promotion(registry, "a", 1)
            emit_promotion(registry, "b", 1)
            await eventually(lambda: registry.deliveries.cursor("test") == 2)
        assert [d.event.key for d in registry.deliveries.find()] == ["b"]

    asyncio.run(scenario())


def test_a_handler_that_raises_is_tried_again_and_then_dead_with_what_it_said(
    registry: StoredRegistry,
) -> None:
    attempts: list[tuple[int, str]] = []

    def handler(event: Received[Any], context: Context) -> None:
        attempts.append((context.attempt, context.idempotency_key))
        raise RuntimeError("the printer is on fire, token=ghp_" + "a" * 36)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler, retries=2, backoff=0.01)):
            emit_promotion(registry)
            await eventually(lambda: states(registry) == [DeliveryState.DEAD])

    asyncio.run(scenario())
    assert [number for number, _ in attempts] == [1, 2, 3]
    assert len({key for _, key in attempts}) == 1
    (dead,) = registry.deliveries.find()
    assert "the printer is on fire" in (dead.error or "")
    assert "ghp_" not in (dead.error or "")


def test_a_handler_that_exits_ends_its_delivery_and_not_the_process(registry: StoredRegistry) -> None:
    def handler(event: Received[Any], context: Context) -> None:
        raise SystemExit(3)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler, retries=0)):
            emit_promotion(registry)
            await eventually(lambda: states(registry) == [DeliveryState.DEAD])

    asyncio.run(scenario())
    assert "SystemExit: 3" in (registry.deliveries.find()[0].error or "")


def test_order_within_a_key_is_kept_also_when_one_of_them_must_be_tried_again(
    registry: StoredRegistry,
) -> None:
    seen: list[int] = []

    def handler(event: Received[AliasMoved], context: Context) -> None:
        if event.data.to_version == 2 and context.attempt < 3:
            raise RuntimeError("not yet")
        seen.append(event.data.to_version)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler, backoff=0.01)):
            for n in range(1, 6):
                emit_promotion(registry, "a", n)
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 5)

    asyncio.run(scenario())
    assert seen == [1, 2, 3, 4, 5]


def test_with_latest_what_waited_is_superseded_by_the_newest(registry: StoredRegistry) -> None:
    seen: list[int] = []
    gate = threading.Event()

    def handler(event: Received[AliasMoved], context: Context) -> None:
        gate.wait(20)
        seen.append(event.data.to_version)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler, mode="latest")):
            emit_promotion(registry, "a", 1)
            await eventually(lambda: states(registry) == [DeliveryState.RUNNING])
            for n in (2, 3, 4):
                emit_promotion(registry, "a", n)
            await eventually(lambda: len(states(registry)) == 4)
            gate.set()
            await eventually(
                lambda: not {DeliveryState.RUNNING, DeliveryState.PENDING} & set(states(registry))
            )

    asyncio.run(scenario())
    assert seen == [1, 4]


def test_effects_in_the_context_transaction_and_the_end_of_the_delivery_are_one(
    registry: StoredRegistry,
) -> None:
    def handler(event: Received[AliasMoved], context: Context) -> None:
        with context.transaction() as acting:
            write(
                acting, EventType.ALIAS_ROLLED_BACK, promoted("effect", event.data.to_version), key="effect"
            )
            if context.attempt == 1:
                raise RuntimeError("after the effect")

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler, backoff=0.01)):
            cause = emit_promotion(registry)
            await eventually(lambda: states(registry) == [DeliveryState.DONE])
            (effect,) = [e for e in registry.events.after(0) if e.key == "effect"]
            assert (effect.actor, effect.causation) == ("trigger:support/watch", cause.id)
            assert effect.correlation == cause.correlation

    asyncio.run(scenario())


def test_a_second_transaction_of_one_attempt_is_refused(registry: StoredRegistry) -> None:
    raised: list[Exception] = []

    def handler(event: Received[AliasMoved], context: Context) -> None:
        with context.transaction():
            pass
        try:
            with context.transaction():
                pass
        except DeliveryRefused as error:
            raised.append(error)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler)):
            emit_promotion(registry)
            await eventually(lambda: states(registry) == [DeliveryState.DONE])

    asyncio.run(scenario())
    assert len(raised) == 1


def test_a_handler_that_would_start_itself_is_stopped_and_the_row_says_so(registry: StoredRegistry) -> None:
    calls: list[str] = []

    def handler(event: Received[AliasMoved], context: Context) -> None:
        calls.append(event.id)
        with context.transaction() as acting:
            write(acting, EventType.ALIAS_PROMOTED, promoted("b", event.data.to_version), key="b")

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler)):
            emit_promotion(registry, "a")
            await eventually(lambda: states(registry) == [DeliveryState.DONE, DeliveryState.STOPPED])

    asyncio.run(scenario())
    assert len(calls) == 1
    (stopped,) = registry.deliveries.find(state=DeliveryState.STOPPED)
    assert "would start itself" in (stopped.error or "")


def test_a_rule_that_says_no_ends_the_delivery_without_a_retry(registry: StoredRegistry) -> None:
    calls: list[int] = []

    def handler(event: Received[Any], context: Context) -> None:
        calls.append(context.attempt)
        raise GateFailed("accuracy 0.7 is below 0.8")

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler, backoff=0.01)):
            emit_promotion(registry)
            await eventually(lambda: states(registry) == [DeliveryState.DONE])

    asyncio.run(scenario())
    assert calls == [1]
    assert "below 0.8" in (registry.deliveries.find()[0].error or "")


def test_what_meets_a_hold_waits_until_it_is_released(registry: StoredRegistry) -> None:
    calls: list[int] = []

    def handler(event: Received[Any], context: Context) -> None:
        calls.append(context.attempt)
        if len(calls) == 1:
            raise AliasHeld("held by ada", artifact="a", alias="production")

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler)):
            emit_promotion(registry, "a")
            # No alias 'a:production' is there, so nothing holds it any more when the executor looks.
            await eventually(lambda: states(registry) == [DeliveryState.DONE])

    asyncio.run(scenario())
    assert calls == [1, 1]


def test_a_replay_reaches_the_handler_as_a_new_delivery(registry: StoredRegistry) -> None:
    keys: list[str] = []

    def handler(event: Received[Any], context: Context) -> None:
        keys.append(context.idempotency_key)

    async def scenario() -> None:
        async with running(registry, MemoryBus(), served(handler)):
            happened = emit_promotion(registry)
            await eventually(lambda: states(registry) == [DeliveryState.DONE])
            registry.deliveries.replay(happened, "support/watch")
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 2)

    asyncio.run(scenario())
    assert len(set(keys)) == 2


@pytest.mark.parametrize("point", ["delivery.recorded", "delivery.handled", "delivery.ended"])
def test_a_consumer_that_dies_anywhere_leaves_every_event_handled_in_order(
    registry: StoredRegistry, tmp_path: Path, point: str
) -> None:
    seen: list[int] = []
    died = threading.Event()

    class Killed(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point and not died.is_set():
            died.set()
            raise Killed

    def handler(event: Received[AliasMoved], context: Context) -> None:
        seen.append(event.data.to_version)

    async def scenario() -> None:
        bus = MemoryBus()
        with crashpoints.observed_by(die), suppress(Killed):
            async with running(registry, bus, served(handler)):
                for n in (1, 2, 3):
                    emit_promotion(registry, "a", n)
                await eventually(died.is_set)
        async with running(registry, bus, served(handler)):
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 3)

    asyncio.run(scenario())
    assert list(dict.fromkeys(seen)) == [1, 2, 3]


def test_a_stream_that_is_filled_again_repeats_nothing(registry: StoredRegistry) -> None:
    seen: list[int] = []

    def handler(event: Received[AliasMoved], context: Context) -> None:
        seen.append(event.data.to_version)

    async def scenario() -> None:
        bus = MemoryBus()
        async with running(registry, bus, served(handler)):
            for n in (1, 2, 3):
                emit_promotion(registry, "a", n)
            await eventually(lambda: registry.events.position().relayed == 3)
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 3)
            bus.logs.clear()
            emit_promotion(registry, "a", 4)
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 4)
        assert registry.events.position().incarnation == 2

    asyncio.run(scenario())
    assert seen == [1, 2, 3, 4]


def test_events_of_a_stream_ahead_of_a_restored_database_start_nothing(registry: StoredRegistry) -> None:
    seen: list[str] = []

    async def scenario() -> None:
        bus = MemoryBus()
        stream = Stream(registry.database_id, 1)
        mine = emit_promotion(registry, "a", 1)
        await bus.create(stream)
        await bus.publish(stream, mine, after=None)
        stop, reports = asyncio.Event(), list[str]()
        found = [served(lambda event, context: seen.append(event.id))]
        registry.deliveries.serve("test", {found[0].name: None})
        await bus.publish(stream, event(2, id="lost"), after=mine.id)
        task = asyncio.create_task(
            run_consumer(registry, bus, "test", lambda: found, stop, lambda line, **_: reports.append(line))
        )
        await eventually(lambda: any("does not have" in line for line in reports))
        stop.set()
        await task

    asyncio.run(scenario())
    assert seen == []
    assert registry.deliveries.find() == []


def test_two_processes_of_one_consumer_handle_each_event_once(
    registry: StoredRegistry, tmp_path: Path
) -> None:
    seen: list[int] = []

    def handler(event: Received[AliasMoved], context: Context) -> None:
        seen.append(event.data.to_version)

    async def scenario() -> None:
        bus = MemoryBus()
        other = open_registry(tmp_path)
        async with running(registry, bus, served(handler)), running(other, bus, served(handler)):
            for n in range(1, 21):
                emit_promotion(registry, "a", n)
            await eventually(lambda: states(registry) == [DeliveryState.DONE] * 20)
        other.close()

    asyncio.run(scenario())
    assert seen == list(range(1, 21))


def test_a_run_that_a_trigger_asked_for_stands_between_it_and_itself() -> None:
    first = event(1)
    made_by_run = Event(**{**_fields(event(2)), "actor": "run:r1", "causation": None})
    asked = {"r1": ("trigger:support/train", first.id)}
    actors = list(actors_behind(made_by_run, {first.id: first}.get, asked.get))
    assert actors == ["run:r1", "trigger:support/train", "user:ada"]


def test_a_circle_of_causes_ends() -> None:
    looped = Event(**{**_fields(event(1)), "causation": "event-1"})
    assert len(list(actors_behind(looped, lambda _: looped, lambda _: None))) == 200


def _fields(happened: Event) -> dict[str, Any]:
    return {name: getattr(happened, name) for name in Event.__dataclass_fields__}


def test_sifting_passes_over_what_is_known_and_notices_what_is_missing() -> None:
    def sequences(cursor: int, numbers: Sequence[int]) -> tuple[list[int], bool]:
        fresh, has_gap = sift(cursor, [event(n) for n in numbers])
        return [e.sequence for e in fresh], has_gap

    assert sequences(0, [1, 2, 3]) == ([1, 2, 3], False)
    assert sequences(2, [1, 2, 3]) == ([3], False)
    assert sequences(2, [2, 1]) == ([], False)
    assert sequences(0, [3, 1, 2, 1]) == ([1, 2, 3], False)
    assert sequences(0, [2, 3]) == ([2, 3], True)
    assert sequences(0, [1, 3]) == ([1, 3], True)
