"""Broken variants of the protocols. A simulation that does not notice them proves nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence

import pytest

from registry.database.engine import Transaction
from registry.store import session as sessions
from registry.store.promotions import _Expectation
from registry.store.session import Session
from registry.values import Event
from tests.simulation.broker import SharedBus
from tests.simulation.world import Broken, World
from triggers import relay as relays
from triggers.bus import Outcome, Stored, Stream
from triggers.memory import MemoryBus
from triggers.relay import Relay, Step

Patch = pytest.MonkeyPatch


def caught(play: Callable[[int], World], seeds: Iterable[int]) -> int:
    """The first seed at which the oracle complains."""
    for seed in seeds:
        try:
            play(seed)
        except Broken:
            return seed
    raise AssertionError("the oracle never noticed")


def mark_before_the_acknowledgement(patch: Patch) -> None:
    """The database calls events relayed that are still on their way."""
    publish = Relay._publish

    async def marked_first(
        self: Relay, stream: Stream, events: Sequence[Event], last: Stored | None
    ) -> list[Outcome]:
        await self._mark(stream, Stored(events[-1].sequence, events[-1].id))
        return await publish(self, stream, events, last)

    patch.setattr(Relay, "_publish", marked_first)


def publish_without_naming_the_predecessor(patch: Patch) -> None:
    """No fence at the broker: only the ids that it remembers keep a repeat out."""

    async def unfenced(self: MemoryBus, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        log = self.logs.get(stream)
        if log is None:
            return Outcome.ABSENT
        if event.id in log.ids:
            return Outcome.DUPLICATE
        log.events.append(event)
        log.ids.add(event.id)
        log.news.set()
        return Outcome.STORED

    patch.setattr(MemoryBus, "publish", unfenced)


def publish_what_a_look_did_not_find(patch: Patch) -> None:
    """Deduplication by an existence check alone."""

    async def looked(self: SharedBus, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        if await self.find(stream, event.sequence) is not None:
            return Outcome.DUPLICATE
        await self._go()
        log = self._bus.logs.get(stream)
        if log is None:
            return Outcome.ABSENT
        log.events.append(event)
        log.news.set()
        await self._return()
        return Outcome.STORED

    patch.setattr(SharedBus, "publish", looked)


def relay_without_the_lease(patch: Patch) -> None:
    """A relay that was thought dead still writes to the database."""
    begin = Relay.__init__

    def without(self: Relay, registry: object, *arguments: object, **options: object) -> None:
        begin(self, registry, *arguments, **options)  # type: ignore[arg-type]
        self._registry = registry  # type: ignore[assignment]

    patch.setattr(Relay, "__init__", without)


def take_a_stream_that_is_further_for_a_lost_one(patch: Patch) -> None:
    """The relay that died between acknowledgement and mark is not recognised."""
    decide = relays.decide
    patch.setattr(
        relays,
        "decide",
        lambda *seen: Step.BEGIN_ANEW if decide(*seen) is Step.CATCH_UP else decide(*seen),
    )


def number_events_before_their_transaction(patch: Patch) -> None:
    """Sequences from a counter that is not part of the transaction, as PostgreSQL's own are."""
    counters: dict[int, int] = {}
    writing = Session.writing

    def numbered(self: Session):  # type: ignore[no-untyped-def]
        world = self.database._world  # type: ignore[attr-defined]
        (newest,) = world.connection.execute("SELECT event_sequence FROM podium").fetchone()
        counters[id(world)] = max(counters.get(id(world), 0), newest) + 1
        drawn[id(self.database)] = counters[id(world)]
        return writing(self)

    drawn: dict[int, int] = {}

    def write(transaction: Transaction, session: Session) -> None:
        sequence = drawn[id(session.database)]
        rows = transaction.outgoing_events
        transaction._cursor.execute(
            "UPDATE podium SET event_sequence = MAX(event_sequence, ?)", (sequence + len(rows) - 1,)
        )
        numbered_rows = [{**row, "sequence": sequence + i} for i, row in enumerate(rows)]
        transaction.execute_many(sessions._INSERT_EVENT, numbered_rows)

    patch.setattr(Session, "writing", numbered)
    patch.setattr(sessions, "_write_events", write)


def write_the_event_after_the_commit(patch: Patch) -> None:
    """No outbox: first the move, then a message about it."""
    emit = Session.emit

    def afterwards(self: Session, transaction: Transaction, *arguments: object, **options: object) -> str:
        event_id = uuid.uuid4().hex

        def follow() -> None:
            with self.database.transaction() as later:
                emit(self, later, *arguments, **options)  # type: ignore[arg-type]
                later.outgoing_events[-1]["id"] = event_id

        transaction.after_commit.append(follow)
        return event_id

    patch.setattr(Session, "emit", afterwards)


def move_without_checking_the_expectation(patch: Patch) -> None:
    """What the caller expected is looked at when it is judged, and not when the alias moves."""
    patch.setattr(_Expectation, "check", lambda *_: None)
