"""The rows that deliveries are: recorded once, claimed in order, fenced by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from registry.deliveries import OPEN, TRANSITIONS, Arrival, Delivery, DeliveryState
from registry.errors import DeliveryNotFound, DeliveryRefused, StaleAuthority
from registry.store.stored import StoredRegistry
from registry.values import Access, Event
from tests.common.outbox import emit_promotion

READER = "apps"
WATCH = "support/watch"


def serve(registry: StoredRegistry, *names: str) -> None:
    registry.deliveries.serve(READER, dict.fromkeys(names or (WATCH,)))


def record(registry: StoredRegistry, events: Sequence[Event], access: Access = Access.EACH) -> None:
    arrivals = [Arrival(WATCH, event, access) for event in events]
    registry.deliveries.record(READER, arrivals, upto=events[-1])


def claim(registry: StoredRegistry, epoch: int = 1) -> list[Delivery]:
    return registry.deliveries.claim(READER, epoch=epoch, limit=10)


def states(registry: StoredRegistry) -> list[DeliveryState]:
    return [d.state for d in reversed(registry.deliveries.find())]


def test_recording_an_event_twice_makes_one_delivery(registry: StoredRegistry) -> None:
    serve(registry)
    event = emit_promotion(registry)
    record(registry, [event])
    record(registry, [event])
    assert [d.event for d in claim(registry)] == [event]


def test_recording_moves_the_cursor_also_over_events_that_matched_nothing(registry: StoredRegistry) -> None:
    serve(registry)
    event = emit_promotion(registry)
    registry.deliveries.record(READER, [], upto=event)
    assert registry.deliveries.cursor(READER) == event.sequence


def test_an_event_of_another_database_is_refused(registry: StoredRegistry) -> None:
    serve(registry)
    event = replace(emit_promotion(registry), id="f" * 32)
    with pytest.raises(StaleAuthority, match="does not have"):
        record(registry, [event])
    assert registry.deliveries.cursor(READER) == 0


def test_a_batch_of_an_older_incarnation_is_refused(registry: StoredRegistry) -> None:
    serve(registry)
    event = emit_promotion(registry)
    registry.events.begin_incarnation()
    with pytest.raises(StaleAuthority, match="Incarnation 1"):
        registry.deliveries.record(READER, [Arrival(WATCH, event)], upto=event, incarnation=1)


def test_deliveries_of_one_key_run_one_after_the_other_and_other_keys_beside_them(
    registry: StoredRegistry,
) -> None:
    serve(registry)
    first = emit_promotion(registry, "a", 1)
    second = emit_promotion(registry, "a", 2)
    other = emit_promotion(registry, "b", 1)
    record(registry, [first, second, other])
    running = claim(registry)
    assert [d.event for d in running] == [first, other]
    assert claim(registry) == []
    registry.deliveries.end(running[0], DeliveryState.DONE)
    assert [d.event for d in claim(registry)] == [second]


def test_a_delivery_that_waits_for_its_next_attempt_keeps_later_ones_of_its_key_waiting(
    registry: StoredRegistry,
) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry, "a", 1), emit_promotion(registry, "a", 2)])
    (running,) = claim(registry)
    registry.deliveries.end(running, DeliveryState.PENDING, error="boom", delay=3600)
    assert claim(registry) == []
    due = registry.deliveries.next_due(READER)
    assert due is not None
    assert 3500 < due <= 3600


def test_a_dead_delivery_lets_the_next_one_pass(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry, "a", 1), emit_promotion(registry, "a", 2)])
    (running,) = claim(registry)
    registry.deliveries.end(running, DeliveryState.DEAD, error="boom")
    assert len(claim(registry)) == 1


def test_an_error_that_no_database_can_keep_does_not_keep_the_delivery(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry, "a", 1)])
    (running,) = claim(registry)
    registry.deliveries.end(running, DeliveryState.DEAD, error="no file 'caf\udce9'\0")
    assert "no file 'caf" in str(registry.deliveries.get(running.id).error)


def test_with_latest_a_newer_event_supersedes_what_has_not_started(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry, "a", 1)], Access.LATEST)
    (running,) = claim(registry)
    record(registry, [emit_promotion(registry, "a", n) for n in (2, 3, 4)], Access.LATEST)
    assert states(registry) == [
        DeliveryState.RUNNING,
        DeliveryState.SUPERSEDED,
        DeliveryState.SUPERSEDED,
        DeliveryState.PENDING,
    ]
    registry.deliveries.end(running, DeliveryState.DONE)
    assert [d.event.data["to_version"] for d in claim(registry)] == [4]


def test_a_higher_epoch_takes_over_what_ran_and_the_old_holder_can_no_longer_end_it(
    registry: StoredRegistry,
) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry)])
    (old,) = claim(registry, epoch=1)
    (new,) = claim(registry, epoch=2)
    assert (new.id, new.attempts, new.epoch) == (old.id, 2, 2)
    with pytest.raises(StaleAuthority):
        registry.deliveries.end(old, DeliveryState.DONE)
    registry.deliveries.end(new, DeliveryState.DONE)


def test_what_ran_when_its_process_died_is_taken_over_alone_and_charged_only_if_it_ran_alone(
    registry: StoredRegistry,
) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry, name) for name in ("ant", "bee", "cat")])
    assert len(claim(registry, epoch=1)) == 3  # one of them kills the process
    (first,) = claim(registry, epoch=2)
    assert (first.attempts, first.alone) == (1, True)
    assert claim(registry, epoch=2) == []  # nothing beside it
    (again,) = claim(registry, epoch=3)  # it died of this one: nothing else ran
    assert (again.id, again.attempts) == (first.id, 2)
    registry.deliveries.end(again, DeliveryState.DEAD)
    for _ in range(2):
        (neighbour,) = claim(registry, epoch=3)
        assert (neighbour.attempts, neighbour.alone) == (1, True)
        registry.deliveries.end(neighbour, DeliveryState.DONE)
    record(registry, [emit_promotion(registry, name) for name in ("ant", "bee")])
    assert [each.alone for each in claim(registry, epoch=3)] == [False, False]


def test_nobody_is_forgiven_twice_for_one_death(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry, name) for name in ("ant", "bee", "cat")])
    claim(registry, epoch=1)
    for epoch in (2, 3, 4):
        claim(registry, epoch=epoch)
    attempts = {each.event.data["artifact"]: each.attempts for each in registry.deliveries.find()}
    assert attempts == {"ant": 3, "bee": 0, "cat": 0}


def test_a_held_delivery_resumes_with_its_attempts_given_back(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry)])
    (running,) = claim(registry)
    registry.deliveries.end(
        running, DeliveryState.HELD, waits_for="support-bot:production", error="held", counted=False
    )
    assert registry.deliveries.waited_for(READER) == ["support-bot:production"]
    assert claim(registry) == []
    assert registry.deliveries.resume(READER, "support-bot:production") == 1
    assert [d.attempts for d in claim(registry)] == [1]


def test_only_a_dead_delivery_can_be_tried_again(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry)])
    (running,) = claim(registry)
    with pytest.raises(DeliveryRefused):
        registry.deliveries.retry(running.id)
    registry.deliveries.end(running, DeliveryState.DEAD, error="boom")
    again = registry.deliveries.retry(running.id)
    assert (again.id, again.state, again.attempts) == (running.id, DeliveryState.PENDING, 0)


def test_a_replay_is_a_new_delivery_with_a_new_id(registry: StoredRegistry) -> None:
    serve(registry)
    event = emit_promotion(registry)
    record(registry, [event])
    (first,) = claim(registry)
    registry.deliveries.end(first, DeliveryState.DONE)
    (replayed,) = registry.deliveries.replay(event, WATCH)
    assert replayed.id != first.id
    assert [(d.id, d.replay) for d in claim(registry)] == [(replayed.id, 1)]


def test_replaying_before_the_event_has_arrived_leaves_its_own_delivery_to_come(
    registry: StoredRegistry,
) -> None:
    serve(registry)
    event = emit_promotion(registry)
    registry.deliveries.replay(event, WATCH)
    record(registry, [event])
    assert sorted(d.replay for d in registry.deliveries.find()) == [0, 1]


def test_replaying_to_a_subscription_that_nobody_serves_is_an_error(registry: StoredRegistry) -> None:
    event = emit_promotion(registry)
    with pytest.raises(DeliveryNotFound, match="support/nobody"):
        registry.deliveries.replay(event, "support/nobody")


def test_a_new_consumer_begins_with_what_comes_next(registry: StoredRegistry) -> None:
    emit_promotion(registry)
    assert registry.deliveries.serve(READER, {WATCH: None}) == {WATCH: 1}
    assert registry.deliveries.cursor(READER) == 1


def test_a_subscription_gets_what_happened_since_it_was_deployed_though_nothing_ran_then(
    registry: StoredRegistry,
) -> None:
    emit_promotion(registry)
    deployed_at = datetime.now(UTC)
    emit_promotion(registry, version=2)
    assert registry.deliveries.serve(READER, {WATCH: deployed_at}) == {WATCH: 1}
    assert registry.deliveries.cursor(READER) == 1


def test_a_subscription_that_begins_earlier_gives_the_others_nothing_again(registry: StoredRegistry) -> None:
    serve(registry)
    deployed_at = datetime.now(UTC)
    event = emit_promotion(registry)
    registry.deliveries.record(READER, [], upto=event)
    since = registry.deliveries.serve(READER, {WATCH: None, "support/new": deployed_at})
    assert since == {WATCH: 1, "support/new": 0}
    assert registry.deliveries.cursor(READER) == 0


def test_deliveries_of_a_removed_subscription_stop(registry: StoredRegistry) -> None:
    serve(registry)
    record(registry, [emit_promotion(registry)])
    serve(registry, "support/other")
    assert states(registry) == [DeliveryState.STOPPED]


def test_every_open_state_can_be_left_and_every_final_one_only_by_a_person() -> None:
    assert all(TRANSITIONS[state] for state in OPEN)
    final = set(DeliveryState) - OPEN
    assert {state for state in final if TRANSITIONS[state]} == {DeliveryState.DEAD}


def test_each_subscription_says_how_it_is_doing(registry: StoredRegistry) -> None:
    emit_promotion(registry)
    serve(registry, WATCH, "support/idle")
    events = [emit_promotion(registry, name) for name in ("a", "b", "c", "d")]
    record(registry, events[:3])
    first, second, _ = claim(registry)
    registry.deliveries.end(first, DeliveryState.DEAD, error="no")
    registry.deliveries.end(second, DeliveryState.HELD, waits_for="b:production")
    idle, watch = registry.deliveries.subscriptions()
    assert (watch.name, watch.consumer, watch.since, watch.behind) == (WATCH, READER, 1, 1)
    assert (watch.pending, watch.running, watch.held, watch.dead) == (0, 1, 1, 1)
    assert watch.oldest == registry.deliveries.get(second.id).created_at
    assert (idle.name, idle.pending, idle.dead, idle.oldest) == ("support/idle", 0, 0, None)
