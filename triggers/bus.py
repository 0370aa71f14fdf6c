"""The port to the event stream: what the relay and the consumers need of a broker.

One stream carries the events of one database in one *incarnation*. Events stand in it in the order of their
commit and without gaps, because each publish names the message that must be the last one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from registry.values import Event


@dataclass(frozen=True, slots=True)
class Stream:
    """Which stream is meant."""

    database_id: str
    incarnation: int

    @property
    def name(self) -> str:
        return f"podium-{self.database_id}-{self.incarnation}"


class Outcome(StrEnum):
    """What became of a publish."""

    STORED = "stored"  # the last message is now this one
    DUPLICATE = "duplicate"  # the stream remembers that it has it
    REFUSED = "refused"  # another message is the last one; the stream did not change
    ABSENT = "absent"  # there is no such stream


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as it lies in a stream."""

    sequence: int  # the event's sequence in the database
    id: str


class Condition(StrEnum):
    ABSENT = "absent"  # the stream is not there
    EMPTY = "empty"  # it is there and never held a message
    FILLED = "filled"  # it ends with one of our events
    FOREIGN = "foreign"  # it ends with something else, or its messages are gone
    ASIDE = "aside"  # a stream of a later incarnation has taken its place: nothing can be published to it


@dataclass(frozen=True, slots=True)
class StreamState:
    """How a stream ends."""

    condition: Condition
    last: Stored | None = None  # set when FILLED


class Reader(Protocol):
    """A durable reader of a stream."""

    async def fetch(self, limit: int, timeout: float) -> Sequence[Event]:
        """Up to ``limit`` events in order; none after ``timeout`` seconds without any.

        Raises:
            BrokerUnavailable: the broker cannot be reached, or the stream is gone.
        """

    async def acknowledge(self) -> None:
        """Say that everything fetched so far has been dealt with, so that it does not come again."""

    async def close(self) -> None: ...


class Bus(Protocol):
    """A broker.

    Every call may raise `registry.errors.BrokerUnavailable`; then nothing is known of its effect.
    """

    async def state(self, stream: Stream) -> StreamState: ...

    async def create(self, stream: Stream) -> None:
        """Make the stream if it is not there, and put older streams of the database aside."""

    async def publish(self, stream: Stream, event: Event, *, after: str | None) -> Outcome:
        """Append ``event`` if the last message has the id ``after`` (None: if the stream is empty)."""

    async def find(self, stream: Stream, sequence: int) -> Stored | None:
        """The event with this sequence in the database, as the stream has it."""

    async def reader(self, stream: Stream, consumer: str, *, after: int) -> Reader:
        """The durable reader ``consumer``; a new one begins behind the event with the sequence ``after``."""
