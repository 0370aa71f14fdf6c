"""The relay: copies the outbox to the stream, in order, each event once.

It publishes in the order of the outbox, and every message names the one that must be the last before it. So
whatever is repeated, late, or sent by a relay that was thought dead, the stream only ever grows by the next
event. After the acknowledgement the position is marked in the database; a relay that dies in between finds,
at its next start, the stream further than the mark, and moves the mark.

What the relay finds when it begins is one of a few situations, each with one answer (`decide`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from registry.crashpoints import reached
from registry.errors import BrokerUnavailable, DatabaseUnavailable, StaleAuthority
from registry.protocol import Registry
from registry.services import Report
from registry.values import Event, Lease, Origin, StreamPosition
from triggers.bus import Bus, Condition, Outcome, Stored, Stream, StreamState
from triggers.calls import Threads
from triggers.errors import StreamAhead
from triggers.leadership import Leadership
from triggers.tasks import first_of

LEASE = "relay"
ACTOR = "system:relay"

_WINDOW = 256  # messages that are on their way at once
_MARK_SECONDS = 0.02  # the mark waits for a pause this long, to keep out of the writers' way
_MARK_EVENTS = 1024
_IDLE_SECONDS = 1.0  # then it looks whether the stream is still what it was
_RETRY_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)


class Step(StrEnum):
    """What the relay does next."""

    CREATE = "create"  # nothing was relayed yet, and there is no stream
    PUBLISH = "publish"  # the stream ends where the mark is
    CATCH_UP = "catch up"  # the stream is further than the mark: the relay died in between
    BEGIN_ANEW = "begin anew"  # the stream lost something: fill another from the outbox
    STOP = "stop"  # the stream has what the database does not: a person must decide
    SUPERSEDED = "superseded"  # a later incarnation is there than the database knows of: a person must decide


def decide(position: StreamPosition, state: StreamState, known: str | None) -> Step:
    """What follows from where the database and the stream are.

    ``known`` is the id that the outbox has at the sequence of the stream's last event; None if it has none.
    """
    if state.condition is Condition.ABSENT:
        return Step.CREATE if position.relayed == 0 else Step.BEGIN_ANEW
    if state.condition is Condition.ASIDE:
        return Step.SUPERSEDED
    if state.condition is Condition.FOREIGN:
        return Step.BEGIN_ANEW
    if state.condition is Condition.EMPTY or state.last is None:
        return Step.PUBLISH if position.relayed == 0 else Step.BEGIN_ANEW
    if known != state.last.id:
        return Step.STOP
    if state.last.sequence > position.relayed:
        return Step.CATCH_UP
    return Step.PUBLISH if state.last.sequence == position.relayed else Step.BEGIN_ANEW


def confirmed(events: Sequence[Event], outcomes: Sequence[Outcome]) -> Sequence[Event]:
    """The events of a window that are known to be in the stream: those before the first that is not."""
    good = {Outcome.STORED, Outcome.DUPLICATE}
    count = next((i for i, outcome in enumerate(outcomes) if outcome not in good), len(outcomes))
    return events[:count]


@dataclass
class _Progress:
    """How far one leader has come."""

    stream: Stream
    last: Stored | None  # the last event known to be in the stream
    marked: int  # the sequence that the database knows of

    @property
    def sequence(self) -> int:
        return self.last.sequence if self.last else 0


class Relay:
    """One leader's work, from its lease to the loss of it."""

    def __init__(self, registry: Registry, bus: Bus, lease: Lease, *, calls: Threads, report: Report) -> None:
        self._registry = registry.acting(Origin(ACTOR, authority=lease.authority))
        self._bus = bus
        self._calls = calls
        self._report = report
        self._came = 0  # grows whenever this leader finds that the stream has more than it knew of

    async def run(self) -> None:
        """Relay until cancelled.

        Raises:
            StreamAhead: the stream has events that the database does not.
            StaleAuthority: another relay leads, or a person began a new stream.
        """
        reached("relay.claimed")
        failures = 0
        while True:
            before = self._came
            try:
                await self._copy(await self._agree())
            except (BrokerUnavailable, DatabaseUnavailable) as error:
                await self._say_waiting(error)
            # Also when nothing failed: what was found and what can be done may not go together for a while.
            failures = failures + 1 if self._came == before else 1
            await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1])

    async def _agree(self) -> _Progress:
        """Bring database and stream to where the next event can be published."""
        while True:
            position, stream, state, known = await self._look()
            match decide(position, state, known):
                case Step.PUBLISH:
                    return _Progress(stream, state.last, position.relayed)
                case Step.CATCH_UP:
                    assert state.last is not None
                    await self._mark(stream, state.last)
                    self._came += 1
                case Step.CREATE:
                    await self._create(stream)
                case Step.BEGIN_ANEW:
                    self._report(f"{stream.name} lost events; filling a new stream", healthy=False)
                    await self._calls(self._registry.events.begin_incarnation)
                    reached("relay.begun")
                case Step.STOP:
                    assert state.last is not None
                    raise _ahead(stream, state.last, position)
                case Step.SUPERSEDED:
                    await self._refuse_older(stream)

    async def _create(self, stream: Stream) -> None:
        try:
            await self._bus.create(stream)
        except StreamAhead:
            await self._refuse_older(stream)
            return
        reached("relay.created")

    async def _refuse_older(self, stream: Stream) -> None:
        """Stop at a later incarnation than the database's, unless it has come to the same meanwhile.

        While this relay paused, another one may have led and begun the stream that is there.
        """
        position = await self._calls(self._registry.events.position)
        if position.incarnation == stream.incarnation:
            raise _superseded(stream)

    async def _look(self) -> tuple[StreamPosition, Stream, StreamState, str | None]:
        position = await self._calls(self._registry.events.position)
        stream = Stream(position.database_id, position.incarnation)
        state = await self._bus.state(stream)
        known = None
        if state.last is not None:
            before = state.last.sequence - 1
            found = await self._calls(lambda: self._registry.events.after(before, limit=1))
            known = found[0].id if found and found[0].sequence == state.last.sequence else None
        return position, stream, state, known

    async def _copy(self, progress: _Progress) -> None:
        """Publish what is in the outbox and what comes, until something is not as expected."""
        self._say_up_to_date(progress)
        while True:
            events = await self._next(progress)
            if not events:
                if progress.marked < progress.sequence:
                    await self._mark_progress(progress)
                elif not await self._is_unchanged(progress):
                    return
                continue
            outcomes = await self._publish(progress.stream, events, progress.last)
            stored = confirmed(events, outcomes)
            if stored:
                reached("relay.published")
                progress.last = Stored(stored[-1].sequence, stored[-1].id)
                self._came += len(stored)
            if progress.sequence - progress.marked >= _MARK_EVENTS:
                await self._mark_progress(progress)
            if len(stored) < len(events):
                return

    async def _next(self, progress: _Progress) -> Sequence[Event]:
        """The next events; none if there were none for a while."""
        patience = _MARK_SECONDS if progress.marked < progress.sequence else _IDLE_SECONDS
        events = self._registry.events

        def wait() -> Sequence[Event]:
            # One visit to the thread for both: the wake-up is in the path of every promotion.
            events.wait(progress.sequence, patience)
            return events.after(progress.sequence, limit=_WINDOW)

        return await self._calls(wait)

    async def _publish(self, stream: Stream, events: Sequence[Event], last: Stored | None) -> list[Outcome]:
        before = [last.id if last else None, *(event.id for event in events[:-1])]
        if len(events) == 1:
            return [await self._bus.publish(stream, events[0], after=before[0])]
        sends = [self._bus.publish(stream, e, after=b) for e, b in zip(events, before, strict=True)]
        return await asyncio.gather(*sends)

    async def _is_unchanged(self, progress: _Progress) -> bool:
        """Whether the stream still ends with what was published last, and is still the one to publish to."""
        position, _, state, _ = await self._look()
        return state.last == progress.last and position.incarnation == progress.stream.incarnation

    async def _mark_progress(self, progress: _Progress) -> None:
        assert progress.last is not None
        await self._mark(progress.stream, progress.last)
        progress.marked = progress.last.sequence
        self._say_up_to_date(progress)

    async def _mark(self, stream: Stream, last: Stored) -> None:
        mark = self._registry.events.mark_relayed
        await self._calls(lambda: mark(last.sequence, last.id, incarnation=stream.incarnation))
        reached("relay.marked")

    def _say_up_to_date(self, progress: _Progress) -> None:
        self._report(f"relaying into {progress.stream.name}")

    async def _say_waiting(self, error: Exception) -> None:
        waiting = "events wait"
        with suppress(DatabaseUnavailable):
            position = await self._calls(self._registry.events.position)
            count = position.newest - position.relayed
            waiting = f"{count} events wait" if count else "events will wait"
        self._report(f"nothing is relayed, {waiting}: {error}", healthy=False)


async def run_relay(registry: Registry, bus: Bus, stop: asyncio.Event, report: Report) -> None:
    """Relay whenever this process leads, until ``stop``.

    Raises:
        StreamAhead: the stream has events that the database does not; nothing was published.
    """
    calls, waits = Threads("relay-lease"), Threads("relay")
    leadership = Leadership(registry.leases, LEASE, term=registry.settings.lease_seconds, calls=calls)

    async def work(lease: Lease) -> None:
        with suppress(StaleAuthority):  # the lease or the stream has passed on: see who leads now
            relay = Relay(registry, bus, lease, calls=waits, report=report)
            await first_of(asyncio.create_task(relay.run()), asyncio.create_task(stop.wait()))

    try:
        await leadership.lead(stop, work)
    finally:
        calls.close()
        waits.close()


def _superseded(stream: Stream) -> StreamAhead:
    return StreamAhead(
        f"{stream.name} was put aside for a later incarnation, and the database is at {stream.incarnation}: "
        "it was probably restored from a backup. Nothing is relayed.",
        remedy="Check that this is the right database, then run 'podium events adopt'.",
        stream=stream.name,
        incarnation=stream.incarnation,
    )


def _ahead(stream: Stream, last: Stored, position: StreamPosition) -> StreamAhead:
    return StreamAhead(
        f"{stream.name} ends with event {last.sequence} ({last.id}), which the database, at event "
        f"{position.newest}, does not have: it was probably restored from a backup. Nothing is relayed.",
        remedy="Check that this is the right database, then run 'podium events adopt'.",
        stream=stream.name,
        sequence=last.sequence,
    )
