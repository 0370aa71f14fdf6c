"""The outbox: events as rows, and how far they have been copied to the stream."""

from __future__ import annotations

import json
import threading

from registry.database.engine import Row, to_time
from registry.database.statements import sql
from registry.database.watch import Watch, watch
from registry.errors import NotFound, StaleAuthority
from registry.store.session import Session
from registry.values import Event, StreamPosition

#: What `event_of` reads, in its order.
EVENT_COLUMNS = (
    *("sequence", "id", "type", "subject", "key", "at", "actor", "data"),
    *("causation", "correlation", "traceparent", "schema_version"),
)
_COLUMNS = ", ".join(EVENT_COLUMNS)
_AFTER = sql(f"SELECT {_COLUMNS} FROM event WHERE sequence > :sequence ORDER BY sequence LIMIT :limit")
_TAIL = sql(f"SELECT {_COLUMNS} FROM event ORDER BY sequence DESC LIMIT :limit")
_GET = sql(f"SELECT {_COLUMNS} FROM event WHERE id = :id")
_BEGINNING = sql(f"SELECT {_COLUMNS} FROM event WHERE SUBSTR(id, 1, :length) = :id LIMIT 2")
_FIND = sql(f"""
    SELECT {_COLUMNS} FROM event
    WHERE SUBSTR(type, 1, :length) = :type
      AND (CAST(:key AS TEXT) IS NULL OR key = :key)
      AND (CAST(:actor AS TEXT) IS NULL OR actor = :actor)
      AND (CAST(:before AS BIGINT) IS NULL OR sequence < :before)
    ORDER BY sequence DESC LIMIT :limit
""")
_CAUSED = sql(f"SELECT {_COLUMNS} FROM event WHERE causation = :id ORDER BY sequence LIMIT :limit")
_POSITION = sql("""
    SELECT database_id, incarnation, relayed_sequence, relayed_id, event_sequence FROM podium WHERE one = 1
""")
_NEWEST = sql("SELECT event_sequence FROM podium WHERE one = 1")
_MARK = sql("""
    UPDATE podium SET relayed_sequence = :sequence, relayed_id = :id
    WHERE one = 1 AND incarnation = :incarnation AND relayed_sequence < :sequence
""")
_INCARNATION = sql("SELECT incarnation FROM podium WHERE one = 1")
_BEGIN = sql("""
    UPDATE podium SET incarnation = incarnation + 1, relayed_sequence = :relayed, relayed_id = :relayed_id
    WHERE one = 1
""")


class StoredEvents:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._local = threading.local()

    def after(self, sequence: int, *, limit: int = 100) -> list[Event]:
        with self._session.reading() as reader:
            return [event_of(row) for row in reader.all(_AFTER, sequence=sequence, limit=limit)]

    def get(self, event_id: str) -> Event:
        with self._session.reading() as reader:
            rows = reader.all(_GET, id=event_id)
            if not rows and event_id:
                rows = reader.all(_BEGINNING, id=event_id, length=len(event_id))
        if len(rows) != 1:
            how_many = "more than one event" if rows else "no event"
            raise NotFound(f"There is {how_many} '{event_id[:40]}'.", remedy="See 'podium events list'.")
        return event_of(rows[0])

    def tail(self, *, limit: int = 20) -> list[Event]:
        with self._session.reading() as reader:
            return [event_of(row) for row in reversed(reader.all(_TAIL, limit=limit))]

    def find(
        self,
        *,
        type: str = "",
        key: str | None = None,
        actor: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        with self._session.reading() as reader:
            found = reader.all(
                _FIND, type=type, length=len(type), key=key, actor=actor, before=before, limit=limit
            )
        return [event_of(row) for row in found]

    def caused_by(self, event_id: str, *, limit: int = 50) -> list[Event]:
        with self._session.reading() as reader:
            return [event_of(row) for row in reader.all(_CAUSED, id=event_id, limit=limit)]

    def position(self) -> StreamPosition:
        with self._session.reading() as reader:
            return StreamPosition(*reader.one(_POSITION))

    def mark_relayed(self, sequence: int, event_id: str, *, incarnation: int) -> None:
        with self._session.writing() as transaction:
            if transaction.execute(_MARK, sequence=sequence, id=event_id, incarnation=incarnation):
                return
            if transaction.one(_INCARNATION)[0] != incarnation:
                raise StaleAuthority(
                    f"Incarnation {incarnation} of the stream has been followed by another.",
                    remedy="Read the position again and relay into the new stream.",
                )

    def begin_incarnation(self, *, relayed: int = 0, relayed_id: str | None = None) -> StreamPosition:
        with self._session.writing() as transaction:
            transaction.execute(_BEGIN, relayed=relayed, relayed_id=relayed_id)
            return StreamPosition(*transaction.one(_POSITION))

    def wait(self, sequence: int, timeout: float) -> bool:
        return self._watch().wait(lambda: self._newest() > sequence, timeout)

    def _newest(self) -> int:
        with self._session.reading() as reader:
            return int(reader.one(_NEWEST)[0])

    def _watch(self) -> Watch:
        """The calling thread's listener: a datagram wakes one reader only."""
        if not hasattr(self._local, "watch"):
            self._local.watch = watch(self._session.database, self._session.database_id)
        listener: Watch = self._local.watch
        return listener


def event_of(row: Row) -> Event:
    """The event in a row of `EVENT_COLUMNS`."""
    (
        sequence,
        id,
        type,
        subject,
        key,
        at,
        actor,
        data,
        causation,
        correlation,
        traceparent,
        schema_version,
    ) = row
    return Event(
        sequence=sequence,
        id=id,
        type=type,
        subject=subject,
        key=key,
        at=to_time(at),
        actor=actor,
        data=json.loads(data),
        causation=causation,
        correlation=correlation,
        traceparent=traceparent,
        schema_version=schema_version,
    )
