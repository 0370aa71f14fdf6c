"""`podium events`, `dlq` and `subscribe`: what they print, and how they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from registry.cli.root import run
from registry.deliveries import Arrival, Delivery, DeliveryState
from registry.store.stored import StoredRegistry
from tests.common.outbox import emit_promotion

Podium = Callable[..., tuple[int, str]]
WATCH = "support/watch"


@pytest.fixture
def podium(
    registry: StoredRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Podium:
    """Run the command in this process; its exit status and what it printed."""
    monkeypatch.setenv("PODIUM_HOME", str(registry.settings.home))
    monkeypatch.setenv("COLUMNS", "200")

    def running(*arguments: str) -> tuple[int, str]:
        status = run(list(arguments))
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return running


def as_json(podium: Podium, *arguments: str) -> Any:
    status, printed = podium(*arguments, "--json")
    assert status == 0, printed
    return json.loads(printed)


@pytest.fixture
def dead(registry: StoredRegistry) -> Delivery:
    """A delivery that was given up."""
    registry.deliveries.serve("triggers", {WATCH: None})
    event = emit_promotion(registry)
    registry.deliveries.record("triggers", [Arrival(WATCH, event)], upto=event)
    (running,) = registry.deliveries.claim("triggers", epoch=1, limit=1)
    error = "Traceback (most recent call last):\n  ...\nRuntimeError: no paper"
    registry.deliveries.end(running, DeliveryState.DEAD, error=error)
    return registry.deliveries.get(running.id)


def test_events_are_listed_oldest_first(registry: StoredRegistry, podium: Podium) -> None:
    for n in (1, 2, 3):
        emit_promotion(registry, version=n)
    assert [e["sequence"] for e in as_json(podium, "events", "list", "--limit", "2")] == [2, 3]
    assert [e["sequence"] for e in as_json(podium, "events", "list", "--after", "1")] == [2, 3]
    assert "alias.promoted" in podium("events", "list")[1]


def test_events_are_filtered_by_type_subject_and_actor(registry: StoredRegistry, podium: Podium) -> None:
    for n in (1, 2):
        emit_promotion(registry, version=n)
    (one, _) = registry.events.tail(limit=2)
    for filters, found in (
        (("--type", "alias"), 2),
        (("--type", "podium.alias.promoted", "--limit", "1"), 1),
        (("--type", "run"), 0),
        (("--of", one.key), 2),
        (("--of", "another"), 0),
        (("--actor", one.actor), 2),
        (("--actor", "user:nobody"), 0),
    ):
        assert len(as_json(podium, "events", "list", *filters)) == found, filters


def test_tail_prints_one_object_a_line(registry: StoredRegistry, podium: Podium) -> None:
    for n in (1, 2):
        emit_promotion(registry, version=n)
    status, printed = podium("events", "tail", "--no-follow", "--json")
    assert status == 0
    assert [json.loads(line)["data"]["to_version"] for line in printed.splitlines()] == [1, 2]
    assert "support-bot" in podium("events", "tail", "--no-follow", "-n", "1")[1]


def test_an_event_is_shown_with_its_deliveries_by_the_beginning_of_its_id(
    podium: Podium, dead: Delivery
) -> None:
    shown = as_json(podium, "events", "show", dead.event.id[:10])
    assert shown["id"] == dead.event.id
    assert [d["state"] for d in shown["deliveries"]] == ["dead"]
    assert "to_version" in podium("events", "show", dead.event.id)[1]


def test_status_says_what_waits(registry: StoredRegistry, podium: Podium) -> None:
    event = emit_promotion(registry)
    emit_promotion(registry)
    registry.events.mark_relayed(event.sequence, event.id, incarnation=1)
    assert as_json(podium, "events", "status")["waiting"] == 1
    assert "1 wait. No event server runs here" in podium("events", "status")[1]


def test_status_says_that_the_event_server_is_gone_also_when_nothing_waits(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_NATS", "nats://127.0.0.1:1")
    assert "does not answer" in as_json(podium, "events", "status")["problem"]
    assert "0 wait. NATS (127.0.0.1:1) does not answer" in podium("events", "status")[1]


def test_a_replay_makes_a_new_delivery(registry: StoredRegistry, podium: Podium, dead: Delivery) -> None:
    (made,) = as_json(podium, "events", "replay", dead.event.id, "--to", WATCH)
    assert (made["replay"], made["state"]) == (1, "pending")


def test_dead_letters_are_listed_shown_and_retried(podium: Podium, dead: Delivery) -> None:
    (listed,) = as_json(podium, "dlq", "list")
    assert (listed["id"], listed["attempts"]) == (dead.id, 1)
    assert "RuntimeError: no paper" in podium("dlq", "list")[1]
    assert as_json(podium, "dlq", "show", dead.id[:8])["error"] == dead.error
    assert "no paper" in podium("dlq", "show", dead.id)[1]
    (retried,) = as_json(podium, "dlq", "retry", dead.id)
    assert (retried["id"], retried["state"]) == (dead.id, "pending")
    assert as_json(podium, "dlq", "list") == []
    assert len(as_json(podium, "dlq", "list", "--state", "all")) == 1


def test_all_dead_letters_can_be_retried_at_once(podium: Podium, dead: Delivery) -> None:
    assert [each["id"] for each in as_json(podium, "dlq", "retry", "--all")] == [dead.id]


def test_adopting_without_a_server_begins_an_incarnation_and_says_what_is_left(
    registry: StoredRegistry, podium: Podium
) -> None:
    adopted = as_json(podium, "events", "adopt")
    assert adopted["incarnation"] == 2
    assert "not reachable" in adopted["note"]
    assert registry.events.position().incarnation == 2


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("events", "show", "nothing"), 2, "no event 'nothing'"),
        (("events", "replay", "nothing", "--to", "a/b"), 2, "no event"),
        (("events", "replay", "nothing"), 2, "--to"),
        (("events", "list", "--limit", "0"), 2, "limit"),
        (("events", "list", "--after", "1", "--type", "run"), 2, "no filter"),
        (("dlq", "show", "nothing"), 2, "no delivery 'nothing'"),
        (("dlq", "retry", "nothing"), 2, "no delivery"),
        (("dlq", "retry"), 2, "which deliveries"),
        (("dlq", "retry", "x", "--all"), 2, "which deliveries"),
        (("dlq", "list", "--state", "sleepy"), 2, "sleepy"),
        (("subscribe", "nowhere.py"), 2, "no Python file"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    podium: Podium, arguments: tuple[str, ...], status: int, says: str
) -> None:
    got, printed = podium(*arguments)
    assert (got, says in printed) == (status, True), printed


def test_a_delivery_that_is_not_dead_is_not_retried(
    registry: StoredRegistry, podium: Podium, dead: Delivery
) -> None:
    registry.deliveries.retry(dead.id)
    status, printed = podium("dlq", "retry", dead.id)
    assert status == 1
    assert "is pending" in printed


def test_a_file_without_subscriptions_is_refused(podium: Podium, tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    status, printed = podium("subscribe", str(path))
    assert status == 2
    assert "declares no subscription" in printed


def test_an_unknown_subscription_is_not_an_empty_list(podium: Podium, dead: Delivery) -> None:
    status, printed = podium("dlq", "list", "--subscription", "support/wacht")
    assert status == 2
    assert "no subscription or trigger 'support/wacht'" in printed
    assert as_json(podium, "dlq", "list", "--subscription", WATCH, "--state", "pending") == []
