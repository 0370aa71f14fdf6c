"""Deliveries: what became of an event at a subscription. One row is inbox, retry schedule and dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from registry.values import Access, Event


class DeliveryState(StrEnum):
    PENDING = "pending"  # waits for its turn, or for the time of its next attempt
    RUNNING = "running"  # a handler has been started under the row's epoch
    HELD = "held"  # waits until the hold of an alias is released
    DONE = "done"
    DEAD = "dead"  # given up after its last attempt; kept for a person
    SUPERSEDED = "superseded"  # a newer event of the same key came, and only the newest counts
    STOPPED = "stopped"  # would have started itself, or its subscription is no longer deployed


#: The moves that a delivery may make; everything else is a bug or a stale writer.
TRANSITIONS: Mapping[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.PENDING: frozenset(
        {DeliveryState.RUNNING, DeliveryState.SUPERSEDED, DeliveryState.STOPPED}
    ),
    DeliveryState.RUNNING: frozenset(
        {
            DeliveryState.RUNNING,  # taken over under a higher epoch
            DeliveryState.PENDING,
            DeliveryState.HELD,
            DeliveryState.DONE,
            DeliveryState.DEAD,
            DeliveryState.STOPPED,
        }
    ),
    DeliveryState.HELD: frozenset({DeliveryState.PENDING, DeliveryState.SUPERSEDED, DeliveryState.STOPPED}),
    DeliveryState.DEAD: frozenset({DeliveryState.PENDING}),
    DeliveryState.DONE: frozenset(),
    DeliveryState.SUPERSEDED: frozenset(),
    DeliveryState.STOPPED: frozenset(),
}

#: States in which a delivery keeps the later ones of its subscription and key waiting.
OPEN = frozenset({DeliveryState.PENDING, DeliveryState.RUNNING, DeliveryState.HELD})


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery to be recorded: a subscription that an event matched."""

    subscription: str  # "<app>/<name>"
    event: Event
    access: Access = Access.EACH


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """How a subscription is doing at the consumer that serves it."""

    consumer: str
    name: str  # "APP/NAME"
    since: int  # sequence of the last event that was not for it
    read: int  # sequence up to which its consumer has recorded what matches
    newest: int  # sequence of the newest event
    pending: int  # deliveries that wait for their turn
    running: int
    held: int  # wait for the release of an alias
    dead: int
    oldest: datetime | None  # when the oldest delivery that has not ended was made

    @property
    def behind(self) -> int:
        """How many events its consumer has not looked at, as far as it has said."""
        return max(0, self.newest - self.read)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event at one subscription."""

    id: str  # the same for every attempt: good as an idempotency key
    position: int  # order within its subscription and key
    consumer: str
    subscription: str
    event: Event
    replay: int  # 0 the event's own delivery; 1, 2 ... replays asked for by a person
    access: Access
    state: DeliveryState
    attempts: int  # handlers started so far
    epoch: int  # of the lease under which it was last claimed
    due_at: datetime
    created_at: datetime
    changed_at: datetime
    error: str | None = None  # of the last attempt
    waits_for: str | None = None  # "<artifact>:<alias>" while HELD
    alone: bool = False  # taken over from a process that may have died of it: run it with nothing beside it
