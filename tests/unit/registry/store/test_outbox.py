"""Events: numbered without gaps in the order of commit, written with the fact or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.errors import InvalidInput, NotFound, StaleAuthority
from registry.events import DATA, EventType
from registry.protocol import Registry
from registry.store.stored import StoredRegistry
from registry.values import Lease, Origin
from tests.common.outbox import emit, emit_promotion, promoted, published
from tests.common.registries import Maker, Place


@pytest.fixture
def place(stored_place: Place) -> Place:
    """Events are written here without what makes them, which only a database lets one do."""
    return stored_place


def lease(registry: Registry, name: str, holder: str) -> Lease:
    taken = registry.leases.acquire(name, holder)
    assert taken is not None
    return taken


def test_events_are_numbered_from_one_without_gaps(registry: StoredRegistry) -> None:
    for number in (1, 2, 3):
        emit_promotion(registry, version=number)
    assert [event.sequence for event in registry.events.after(0)] == [1, 2, 3]
    assert registry.events.position().newest == 3


def test_a_transaction_that_is_undone_leaves_no_event_and_no_gap(registry: StoredRegistry) -> None:
    with pytest.raises(RuntimeError), registry.transaction():
        emit_promotion_inside(registry)
        raise RuntimeError
    assert emit_promotion(registry).sequence == 1


def emit_promotion_inside(registry: StoredRegistry) -> None:
    with registry._session.writing() as transaction:
        registry._session.emit(
            transaction,
            EventType.ALIAS_PROMOTED,
            promoted(),
            subject="support-bot:production",
            key="support-bot",
        )


def test_events_of_one_transaction_stand_together_in_the_order_they_were_written(
    registry: StoredRegistry, make: Maker
) -> None:
    with registry.transaction():
        make.adapter("bot")
        registry.promotions.promote("bot:v1", "candidate")
        registry.promotions.promote("bot:v1", "production")
    assert [(e.sequence, e.subject) for e in registry.events.after(0)] == [
        (1, "bot:v1"),
        (2, "bot:candidate"),
        (3, "bot:production"),
    ]


def test_pages_follow_one_another(registry: StoredRegistry) -> None:
    for number in range(5):
        emit_promotion(registry, version=number)
    assert [e.sequence for e in registry.events.after(2, limit=2)] == [3, 4]
    assert [e.sequence for e in registry.events.tail(limit=2)] == [4, 5]


def test_an_event_is_found_by_its_id(registry: StoredRegistry) -> None:
    event = emit_promotion(registry)
    assert registry.events.get(event.id) == event
    with pytest.raises(NotFound, match="no event"):
        registry.events.get("nothing")


def test_an_event_says_who_and_what_led_to_it(registry: StoredRegistry) -> None:
    first = emit_promotion(registry)
    origin = Origin("trigger:support/roll", causation=first.id, correlation=first.correlation)
    second = emit(registry, EventType.VERSION_PUBLISHED, published(), origin=origin)
    assert first.correlation == first.id
    assert (second.actor, second.causation, second.correlation) == (origin.actor, first.id, first.id)


def test_every_event_type_has_a_model_of_its_data() -> None:
    assert set(DATA) == set(EventType)


def test_writers_at_once_make_no_gap_and_their_order_is_the_order_of_their_commits(
    place: Place, make: Maker
) -> None:
    """A reader that follows the sequence never finds an event before its place that it has not seen."""
    writers = [place.open(f"user:{number}") for number in range(4)]
    reader, stop = place.open("user:reader"), threading.Event()
    seen: list[int] = []

    def follow() -> None:
        while True:
            finished = stop.is_set()
            seen.extend(e.sequence for e in reader.events.after(seen[-1] if seen else 0, limit=1000))
            if finished:
                return

    def write(writer: StoredRegistry) -> None:
        for number in range(15):
            if number % 5 == 4:
                with pytest.raises(RuntimeError), writer.transaction():
                    emit_promotion_inside(writer)
                    raise RuntimeError
            else:
                emit_promotion(writer, version=number)

    with ThreadPoolExecutor(5) as pool:
        following = pool.submit(follow)
        list(pool.map(write, writers))
        stop.set()
        following.result()
    assert seen == list(range(1, 49))


def test_waiting_ends_when_another_connection_commits(place: Place, registry: StoredRegistry) -> None:
    other = place.open("user:bob")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(registry.events.wait, 0, 30)
        emit_promotion(other)
        assert waiting.result(30)


def test_waiting_for_what_is_there_already_returns_at_once(registry: StoredRegistry) -> None:
    emit_promotion(registry)
    assert registry.events.wait(0, 30)


def test_waiting_in_vain_says_so(registry: StoredRegistry) -> None:
    emit_promotion(registry)
    assert not registry.events.wait(1, 0.05)


def test_what_was_relayed_is_marked_and_never_taken_back(registry: StoredRegistry) -> None:
    first, second = emit_promotion(registry), emit_promotion(registry, version=2)
    registry.events.mark_relayed(2, second.id, incarnation=1)
    registry.events.mark_relayed(1, first.id, incarnation=1)
    position = registry.events.position()
    assert (position.relayed, position.relayed_id, position.newest) == (2, second.id, 2)


def test_a_new_incarnation_is_filled_again_and_the_old_ones_relay_is_told(registry: StoredRegistry) -> None:
    event = emit_promotion(registry)
    registry.events.mark_relayed(1, event.id, incarnation=1)
    position = registry.events.begin_incarnation()
    assert (position.incarnation, position.relayed, position.relayed_id) == (2, 0, None)
    with pytest.raises(StaleAuthority, match="Incarnation 1"):
        registry.events.mark_relayed(1, event.id, incarnation=1)


def test_a_relay_that_lost_its_lease_marks_nothing(registry: StoredRegistry) -> None:
    event = emit_promotion(registry)
    old = lease(registry, "relay", "first")
    acting = registry.acting(Origin("system:relay", old.authority))
    assert registry.leases.acquire("relay", "second", seen=old) is not None
    with pytest.raises(StaleAuthority):
        acting.events.mark_relayed(1, event.id, incarnation=1)
    with pytest.raises(StaleAuthority):
        acting.events.begin_incarnation()
    assert registry.events.position().relayed == 0


def test_an_event_that_is_too_large_to_send_is_refused_with_what_led_to_it(registry: StoredRegistry) -> None:
    """In the outbox it would stand before all later ones for ever."""
    endless = published().model_copy(update={"tags": {"note": "x" * 600_000}})
    with pytest.raises(InvalidInput, match=r"podium\.version\.published would have"):
        emit(registry, EventType.VERSION_PUBLISHED, endless)
    assert registry.events.position().newest == 0


def test_events_are_found_newest_first_by_type_key_and_actor(registry: StoredRegistry) -> None:
    emit(registry, EventType.VERSION_PUBLISHED, published())
    for number in (1, 2):
        emit_promotion(registry, version=number)
    emit_promotion(registry, "router")
    emit(registry, EventType.ALIAS_PROMOTED, promoted(), origin=Origin("trigger:support/stage"))
    found = registry.events.find
    assert [event.sequence for event in found()] == [5, 4, 3, 2, 1]
    assert [event.sequence for event in found(limit=2, before=4)] == [3, 2]
    assert [event.sequence for event in found(type="podium.version.")] == [1]
    assert [event.sequence for event in found(key="router")] == [4]
    assert [event.sequence for event in found(type="podium.alias.", actor="trigger:support/stage")] == [5]
    assert found(type="podium.%") == []  # no pattern


def test_what_an_event_led_to_is_found_from_it(registry: StoredRegistry) -> None:
    cause = emit_promotion(registry)
    emit_promotion(registry, "router")
    origin = Origin("trigger:support/stage", causation=cause.id)
    effects = [emit(registry, EventType.ALIAS_PROMOTED, promoted(), origin=origin) for _ in range(2)]
    assert registry.events.caused_by(cause.id) == effects
    assert registry.events.caused_by(effects[0].id) == []
