"""Events in their order, and their deliveries to subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from registry.deliveries import Arrival, Delivery, DeliveryState, SubscriptionStatus
from registry.values import Event, StreamPosition


class Events(Protocol):
    """The outbox: events in the order in which they became true."""

    def after(self, sequence: int, *, limit: int = 100) -> list[Event]: ...

    def get(self, event_id: str) -> Event:
        """An event by its id, or by the beginning of it that no other has. Raises `NotFound`."""

    def tail(self, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest of them first."""

    def find(
        self,
        *,
        type: str = "",
        key: str | None = None,
        actor: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The newest events first: of types that begin with ``type``, of one key, by one actor.

        ``before`` is the sequence at which an earlier page has ended.
        """

    def caused_by(self, event_id: str, *, limit: int = 50) -> list[Event]:
        """What an event led to: those that name it as their cause, oldest first."""

    def position(self) -> StreamPosition: ...

    def mark_relayed(self, sequence: int, event_id: str, *, incarnation: int) -> None:
        """Record that all events up to ``sequence`` are in the stream.

        It is called after the broker's acknowledgement, by a registry acting with the relay's authority.
        """

    def begin_incarnation(self, *, relayed: int = 0, relayed_id: str | None = None) -> StreamPosition:
        """Start a new stream, because the old one was lost or cut short; it is filled from ``relayed`` on."""

    def wait(self, sequence: int, timeout: float) -> bool:
        """Block until there may be an event after ``sequence`` (True), or ``timeout`` seconds (False)."""


class Deliveries(Protocol):
    """Events on their way to subscriptions. A *consumer* is a durable reader that serves some of them."""

    def serve(self, consumer: str, subscriptions: Mapping[str, datetime | None]) -> Mapping[str, int]:
        """Make these the subscriptions that ``consumer`` serves.

        Given with each is the time since which it counts (None: now). A consumer that is new begins with
        what comes next. Open deliveries of subscriptions that are no longer served are stopped. Returns the
        sequence after which events are for each subscription.
        """

    def cursor(self, consumer: str) -> int:
        """The sequence up to which the consumer has recorded all its deliveries."""

    def record(
        self, consumer: str, arrivals: Sequence[Arrival], *, upto: Event, incarnation: int | None = None
    ) -> None:
        """Write the deliveries that all events up to ``upto`` led to, and move the cursor there.

        What is recorded already stays as it is. With `Access.LATEST` older ones of a key are superseded.

        Raises:
            StaleAuthority: ``upto`` is not an event of this database, or ``incarnation`` is not the stream's.
        """

    def claim(self, consumer: str, *, epoch: int, limit: int) -> list[Delivery]:
        """Take up to ``limit`` deliveries whose turn it is, and count an attempt of each.

        A delivery's turn comes when it is due and no earlier one of its subscription and key is open. Those
        that ran under a lower epoch are taken over before all others, one at a time and marked ``alone``, and
        only when nothing runs under this one: if the process dies again, it is known of what. Where several
        ran when it died, none of them is charged with the attempt.
        """

    def end(
        self,
        delivery: Delivery,
        state: DeliveryState,
        *,
        error: str | None = None,
        delay: float = 0.0,
        waits_for: str | None = None,
        counted: bool = True,
    ) -> None:
        """Record how an attempt ended; a pending one is due again after ``delay`` seconds.

        One that is not ``counted`` gives the attempt back.

        Raises:
            StaleAuthority: it has been taken over under a higher epoch.
        """

    def next_due(self, consumer: str) -> float | None:
        """Seconds until a delivery's turn comes, 0 or less when one's has come; None if none is pending."""

    def waited_for(self, consumer: str) -> list[str]:
        """The aliases, as ``artifact:alias``, whose release held deliveries wait for."""

    def resume(self, consumer: str, alias: str) -> int:
        """Make pending what waits for ``artifact:alias``; how many that were."""

    def get(self, delivery_id: str) -> Delivery:
        """A delivery by its id, or by the beginning of it that no other has. Raises `DeliveryNotFound`."""

    def find(
        self,
        *,
        state: DeliveryState | None = None,
        subscription: str | None = None,
        event: str | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Newest first."""

    def subscriptions(self) -> list[SubscriptionStatus]:
        """Every subscription and trigger that is served, and how it is doing, by name."""

    def retry(self, delivery_id: str) -> Delivery:
        """Give a dead delivery a new round of attempts, under its own id.

        Raises:
            DeliveryNotFound, DeliveryRefused: it is not dead.
        """

    def replay(self, event: Event, subscription: str) -> Collection[Delivery]:
        """Deliver an event once more, as a new delivery, at every consumer that serves the subscription."""
