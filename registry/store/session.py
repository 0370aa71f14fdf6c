"""What all facets share: the database, and on whose behalf they write."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from registry.database.engine import Database, Transaction
from registry.database.statements import sql
from registry.database.watch import announce
from registry.errors import InvalidInput, StaleAuthority
from registry.events import Data, EventType
from registry.values import Authority, Origin

LONGEST_TEXT = 2000  # characters of a reason or a tag
LARGEST_EVENT = 512 * 1024  # bytes of data; NATS takes messages of 1 MiB unless told otherwise

_EPOCH = sql("SELECT epoch, holder FROM lease WHERE name = :name {share}")
_NEXT_SEQUENCES = sql("""
    UPDATE podium SET event_sequence = event_sequence + :count WHERE one = 1 RETURNING event_sequence
""")
_INSERT_EVENT = sql("""
    INSERT INTO event (sequence, id, type, subject, key, actor, causation, correlation, traceparent,
                       schema_version, data, at)
    VALUES (:sequence, :id, :type, :subject, :key, :actor, :causation, :correlation, NULL, 1, :data, :at)
""")


@dataclass(frozen=True)
class Session:
    """One origin's access to one database."""

    database: Database
    database_id: str
    origin: Origin
    seal: Callable[[Any], None] | None = None  # called with what a promotion made, in its transaction

    def acting(self, origin: Origin) -> Session:
        return replace(self, origin=origin)

    def now(self) -> datetime:
        return self.database.now()

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that commits only while the origin's lease is its own.

        Raises:
            StaleAuthority: the lease has gone to another epoch, or was given up.
        """
        with self.database.transaction() as transaction:
            if self.origin.authority is not None:
                check_authority(transaction, self.origin.authority)
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self.database.reading() as reader:
            yield reader

    def emit(self, transaction: Transaction, type: EventType, data: Data, *, subject: str, key: str) -> str:
        """Write an event as part of ``transaction``; its id. Its sequence is given out at the commit.

        Raises:
            InvalidInput: it is too large to be sent, and would block all that come after it.
        """
        event_id = uuid.uuid4().hex
        body = data.model_dump_json()
        _check_size(type, body)
        row = {
            "id": event_id,
            "type": type.value,
            "subject": subject,
            "key": key,
            "actor": self.origin.actor,
            "causation": self.origin.causation,
            "correlation": self.origin.correlation or event_id,
            "data": body,
            "at": self.now(),
        }
        if not transaction.outgoing_events:
            transaction.before_commit.append(lambda: _write_events(transaction, self))
        transaction.outgoing_events.append(row)
        return event_id


def check_text(text: str, what: str, *, longest: int = LONGEST_TEXT) -> str:
    """``text`` if it can be stored, sent and shown: not endless, and without control characters.

    Raises:
        InvalidInput: the message names it as ``what``.
    """
    if len(text) > longest:
        raise InvalidInput(
            f"{what} has {len(text)} characters; at most {longest} are kept.", remedy="Shorten it."
        )
    if not all(c.isprintable() or c in "\n\t" for c in text):
        raise InvalidInput(
            f"{what} has characters that cannot be shown.", remedy="Use printable Unicode text."
        )
    return text


def _check_size(type: EventType, body: str) -> None:
    size = len(body.encode())
    if size > LARGEST_EVENT:
        raise InvalidInput(
            f"The event {type.value} would have {size} bytes; {LARGEST_EVENT} can be sent.",
            remedy="Nothing was changed. Shorten what was given.",
        )


def check_authority(transaction: Transaction, authority: Authority) -> None:
    """Raise `StaleAuthority` unless the lease still stands; it cannot change before the commit."""
    row = transaction.first(_EPOCH, name=authority.lease)
    if row is None or row[0] != authority.epoch or row[1] is None:
        raise StaleAuthority(
            f"The lease '{authority.lease}' (epoch {authority.epoch}) has passed to another holder.",
            remedy="Nothing was written. The new holder carries on with the work.",
            lease=authority.lease,
            epoch=authority.epoch,
        )


def _write_events(transaction: Transaction, session: Session) -> None:
    """Number and insert the events of a transaction, as its last statements.

    The counter row is locked from here to the commit. Taking it last keeps that time short, and keeps writers
    who hold other rows from waiting for each other in a circle.
    """
    rows = transaction.outgoing_events
    last = int(transaction.one(_NEXT_SEQUENCES, count=len(rows))[0])
    numbered = [{**row, "sequence": last - len(rows) + i} for i, row in enumerate(rows, start=1)]
    transaction.execute_many(_INSERT_EVENT, numbered)
    announce(transaction, session.database, session.database_id)


def to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
