"""Deliveries: inbox, retry schedule and dead letters of subscriptions, as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.deliveries import OPEN, TRANSITIONS, Arrival, Delivery, DeliveryState, SubscriptionStatus
from registry.errors import DeliveryNotFound, DeliveryRefused, StaleAuthority
from registry.store.outbox import EVENT_COLUMNS, event_of
from registry.store.session import Session
from registry.store.subscriptions import statuses
from registry.text import storable
from registry.values import Access, Event

_OPEN = ", ".join(f"'{state}'" for state in sorted(OPEN))
_EVENT_COLUMNS = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
_COLUMNS = f"""
    d.id, d.position, d.consumer, d.subscription, d.replay, d.access, d.state, d.attempts, d.epoch,
    d.due_at, d.created_at, d.changed_at, d.error, d.waits_for, {_EVENT_COLUMNS}
"""
_FROM = f"SELECT {_COLUMNS} FROM delivery d JOIN event e ON e.sequence = d.event_sequence"

_MEET = sql("""
    INSERT INTO consumer (name, sequence, created_at)
    VALUES (:consumer, (SELECT event_sequence FROM podium WHERE one = 1), :now) ON CONFLICT (name) DO NOTHING
""")
_CURSOR = sql("SELECT sequence FROM consumer WHERE name = :consumer")
_ADVANCE = sql("UPDATE consumer SET sequence = :sequence WHERE name = :consumer AND sequence < :sequence")
_SERVED = sql("SELECT name, since FROM subscription WHERE consumer = :consumer")
_SERVE = sql("""
    INSERT INTO subscription (consumer, name, since, created_at)
    VALUES (:consumer, :name, :since, :now) ON CONFLICT (consumer, name) DO NOTHING
""")
_BEFORE = sql("SELECT COALESCE(MAX(sequence), 0) FROM event WHERE at < :at")
_UNSERVE = sql("DELETE FROM subscription WHERE consumer = :consumer AND name = :name")
_DROP = sql(f"""
    UPDATE delivery SET state = 'stopped', waits_for = NULL, error = :error, changed_at = :now
    WHERE consumer = :consumer AND subscription = :name AND state IN ({_OPEN})
""")
_REWIND = sql("UPDATE consumer SET sequence = :sequence WHERE name = :consumer AND sequence > :sequence")
_SETTLE = sql("UPDATE subscription SET since = :sequence WHERE consumer = :consumer AND since < :sequence")
_ORIGIN = sql("""
    SELECT incarnation, (SELECT id FROM event WHERE sequence = :sequence) FROM podium WHERE one = 1
""")
_INSERT = sql("""
    INSERT INTO delivery (id, consumer, subscription, event_sequence, key, replay, access, state,
                          attempts, epoch, due_at, created_at, changed_at)
    VALUES (:id, :consumer, :subscription, :event_sequence, :key, :replay, :access, 'pending',
            0, 0, :now, :now, :now)
    ON CONFLICT DO NOTHING
""")
_SUPERSEDE = sql(f"""
    UPDATE delivery SET state = 'superseded', waits_for = NULL, changed_at = :now
    WHERE consumer = :consumer AND subscription = :subscription AND key = :key
      AND event_sequence < :event_sequence AND replay = 0 AND state IN ({_OPEN}) AND state <> 'running'
""")
# No earlier delivery of the same subscription and key is open.
_FIRST = f"""
    NOT EXISTS (
        SELECT 1 FROM delivery b WHERE b.consumer = d.consumer AND b.subscription = d.subscription
          AND b.key = d.key AND b.position < d.position AND b.state IN ({_OPEN}))
"""
_TURN = sql(f"""
    {_FROM}
    WHERE d.consumer = :consumer AND d.state = 'pending' AND d.due_at <= :now AND {_FIRST}
    ORDER BY d.position LIMIT :limit
""")
_LEFT = sql(f"""
    SELECT d.id FROM delivery d
    WHERE d.consumer = :consumer AND d.state = 'running' AND d.epoch < :epoch AND {_FIRST}
    ORDER BY d.position LIMIT 1
""")
_RUNS = sql("""
    SELECT 1 FROM delivery WHERE consumer = :consumer AND state = 'running' AND epoch = :epoch LIMIT 1
""")
# Under epoch 0 nobody ran them: they are not forgiven a second time.
_FORGIVE = sql("""
    UPDATE delivery SET attempts = attempts - 1, epoch = 0
    WHERE consumer = :consumer AND state = 'running' AND epoch > 0 AND epoch < :epoch AND epoch IN (
        SELECT epoch FROM delivery WHERE consumer = :consumer AND state = 'running'
        GROUP BY epoch HAVING COUNT(*) > 1)
""")
_CLAIM = sql("""
    UPDATE delivery SET state = 'running', attempts = :attempts, epoch = :epoch, changed_at = :now
    WHERE id = :id
""")
_NEXT_DUE = sql(f"""
    SELECT MIN(d.due_at) FROM delivery d WHERE d.consumer = :consumer AND d.state = 'pending' AND {_FIRST}
""")
_WAITED_FOR = sql("SELECT DISTINCT waits_for FROM delivery WHERE consumer = :consumer AND state = 'held'")
_RESUME = sql("""
    UPDATE delivery SET state = 'pending', waits_for = NULL, due_at = :now, changed_at = :now
    WHERE consumer = :consumer AND state = 'held' AND waits_for = :alias
""")
_END = sql("""
    UPDATE delivery SET state = :state, due_at = :due_at, error = :error, waits_for = :waits_for,
        attempts = attempts - :refund, changed_at = :now
    WHERE id = :id AND state = 'running' AND epoch = :epoch
""")
_GET = sql(f"{_FROM} WHERE d.id = :id")
_BEGINNING = sql(f"{_FROM} WHERE SUBSTR(d.id, 1, :length) = :id LIMIT 2")
_STATE = sql("SELECT state FROM delivery WHERE id = :id {lock}")
_AGAIN = sql("""
    UPDATE delivery SET state = 'pending', attempts = 0, due_at = :now, changed_at = :now WHERE id = :id
""")
_REPLAYS = sql("""
    SELECT COALESCE(MAX(replay), -1) FROM delivery
    WHERE consumer = :consumer AND subscription = :subscription AND event_sequence = :event_sequence
""")
_SERVERS = sql("SELECT consumer FROM subscription WHERE name = :name ORDER BY consumer")
_LIST = sql(f"""
    {_FROM}
    WHERE (CAST(:state AS TEXT) IS NULL OR d.state = :state)
      AND (CAST(:subscription AS TEXT) IS NULL OR d.subscription = :subscription)
      AND (CAST(:event AS TEXT) IS NULL OR e.id = :event)
    ORDER BY d.position DESC LIMIT :limit
""")


class StoredDeliveries:
    def __init__(self, session: Session) -> None:
        self._session = session

    def serve(self, consumer: str, subscriptions: Mapping[str, datetime | None]) -> Mapping[str, int]:
        with self._session.writing() as transaction:
            transaction.execute(_MEET, consumer=consumer, now=self._session.now())
            served = {str(row[0]) for row in transaction.all(_SERVED, consumer=consumer)}
            self._drop(transaction, consumer, served - subscriptions.keys())
            self._begin(transaction, consumer, {n: at for n, at in subscriptions.items() if n not in served})
            return {str(name): int(since) for name, since in transaction.all(_SERVED, consumer=consumer)}

    def _drop(self, transaction: Transaction, consumer: str, names: Iterable[str]) -> None:
        for name in names:
            transaction.execute(_UNSERVE, consumer=consumer, name=name)
            transaction.execute(
                _DROP,
                consumer=consumer,
                name=name,
                error="It is no longer deployed.",
                now=self._session.now(),
            )

    def _begin(self, transaction: Transaction, consumer: str, new: Mapping[str, datetime | None]) -> None:
        """Let new subscriptions begin where they were deployed, which may be before the cursor."""
        cursor = int(transaction.one(_CURSOR, consumer=consumer)[0])
        starts = {
            n: cursor if at is None else int(transaction.one(_BEFORE, at=at)[0]) for n, at in new.items()
        }
        first = min(starts.values(), default=cursor)
        if first < cursor:
            # The others have had everything up to the cursor, whatever their filters are by now.
            transaction.execute(_SETTLE, consumer=consumer, sequence=cursor)
            transaction.execute(_REWIND, consumer=consumer, sequence=first)
        for name, since in starts.items():
            transaction.execute(_SERVE, consumer=consumer, name=name, since=since, now=self._session.now())

    def cursor(self, consumer: str) -> int:
        with self._session.reading() as reader:
            row = reader.first(_CURSOR, consumer=consumer)
        return int(row[0]) if row else 0

    def record(
        self, consumer: str, arrivals: Sequence[Arrival], *, upto: Event, incarnation: int | None = None
    ) -> None:
        with self._session.writing() as transaction:
            _refuse_strange(transaction, upto, incarnation)
            now = self._session.now()
            rows = [
                _row(consumer, arrival.subscription, arrival.event, 0, arrival.access) for arrival in arrivals
            ]
            transaction.execute_many(_INSERT, [{**row, "now": now} for row in rows])
            for row in rows:
                if row["access"] == Access.LATEST:
                    _supersede(transaction, row, now)
            transaction.execute(_ADVANCE, consumer=consumer, sequence=upto.sequence)

    def claim(self, consumer: str, *, epoch: int, limit: int) -> list[Delivery]:
        now = self._session.now()
        with self._session.writing() as transaction:
            left = transaction.first(_LEFT, consumer=consumer, epoch=epoch)
            if left is None:
                rows = transaction.all(_TURN, consumer=consumer, now=now, limit=limit)
            elif transaction.first(_RUNS, consumer=consumer, epoch=epoch) is not None:
                return []
            else:
                transaction.execute(_FORGIVE, consumer=consumer, epoch=epoch)
                rows = transaction.all(_GET, id=left[0])
            turn = [_delivery(row) for row in rows]
            transaction.execute_many(
                _CLAIM,
                [{"id": d.id, "attempts": d.attempts + 1, "epoch": epoch, "now": now} for d in turn],
            )
            return [_claimed(d, epoch, now, alone=left is not None) for d in turn]

    def next_due(self, consumer: str) -> float | None:
        with self._session.reading() as reader:
            due = reader.one(_NEXT_DUE, consumer=consumer)[0]
        return None if due is None else (to_time(due) - self._session.now()).total_seconds()

    def waited_for(self, consumer: str) -> list[str]:
        with self._session.reading() as reader:
            return [str(row[0]) for row in reader.all(_WAITED_FOR, consumer=consumer)]

    def resume(self, consumer: str, alias: str) -> int:
        with self._session.writing() as transaction:
            return transaction.execute(_RESUME, consumer=consumer, alias=alias, now=self._session.now())

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
        _check(DeliveryState.RUNNING, state, delivery.id)
        now = self._session.now()
        with self._session.writing() as transaction:
            changed = transaction.execute(
                _END,
                id=delivery.id,
                epoch=delivery.epoch,
                state=state.value,
                due_at=now + timedelta(seconds=delay),
                error=None if error is None else storable(error),
                waits_for=waits_for,
                refund=0 if counted else 1,
                now=now,
            )
            if changed == 0:
                raise StaleAuthority(
                    f"Delivery {delivery.id} is no longer run under epoch {delivery.epoch}.",
                    remedy="Nothing was written. Its new holder carries on.",
                )

    def get(self, delivery_id: str) -> Delivery:
        with self._session.reading() as reader:
            rows = reader.all(_GET, id=delivery_id)
            if not rows and delivery_id:
                rows = reader.all(_BEGINNING, id=delivery_id, length=len(delivery_id))
        if len(rows) != 1:
            how_many = "more than one delivery" if rows else "no delivery"
            raise DeliveryNotFound(
                f"There is {how_many} '{delivery_id[:40]}'.", remedy="See 'podium dlq list --state all'."
            )
        return _delivery(rows[0])

    def find(
        self,
        *,
        state: DeliveryState | None = None,
        subscription: str | None = None,
        event: str | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        with self._session.reading() as reader:
            rows = reader.all(_LIST, state=state, subscription=subscription, event=event, limit=limit)
        return [_delivery(row) for row in rows]

    def subscriptions(self) -> list[SubscriptionStatus]:
        with self._session.reading() as reader:
            return statuses(reader)

    def retry(self, delivery_id: str) -> Delivery:
        with self._session.writing() as transaction:
            found = self.get(delivery_id)
            state = transaction.one(_STATE, id=found.id)[0]
            _check(DeliveryState(state), DeliveryState.PENDING, found.id, asked=True)
            transaction.execute(_AGAIN, id=found.id, now=self._session.now())
            return self.get(found.id)

    def replay(self, event: Event, subscription: str) -> Collection[Delivery]:
        with self._session.writing() as transaction:
            consumers = [str(row[0]) for row in transaction.all(_SERVERS, name=subscription)]
            if not consumers:
                raise DeliveryNotFound(
                    f"Nothing serves a subscription '{subscription}'.",
                    remedy="Name it APP/NAME; 'podium dlq list --state all' shows those that were served.",
                )
            return [self._replay(transaction, consumer, event, subscription) for consumer in consumers]

    def _replay(self, transaction: Transaction, consumer: str, event: Event, subscription: str) -> Delivery:
        newest = transaction.one(
            _REPLAYS, consumer=consumer, subscription=subscription, event_sequence=event.sequence
        )
        # The number 0 stays free for the event's own delivery, which may still be on its way.
        row = _row(consumer, subscription, event, max(1, newest[0] + 1), Access.EACH)
        transaction.execute_many(_INSERT, [{**row, "now": self._session.now()}])
        return self.get(str(row["id"]))


def _refuse_strange(transaction: Transaction, upto: Event, incarnation: int | None) -> None:
    """Refuse a batch that ends with an event which is not this database's, or comes from an old stream."""
    present, known = transaction.one(_ORIGIN, sequence=upto.sequence)
    if known != upto.id:
        raise StaleAuthority(
            f"The stream carries an event (sequence {upto.sequence}) that the database does not have.",
            remedy="If the database was restored from a backup, run 'podium events adopt'.",
        )
    if incarnation is not None and present != incarnation:
        raise StaleAuthority(
            f"Incarnation {incarnation} of the stream has been followed by another.",
            remedy="Read on in the new stream.",
        )


def delivery_id(consumer: str, subscription: str, event_id: str, replay: int) -> str:
    """The id of a delivery: the same whoever records it, however often."""
    named = "\n".join((consumer, subscription, event_id, str(replay)))
    return hashlib.sha256(named.encode()).hexdigest()[:32]


def _row(consumer: str, subscription: str, event: Event, replay: int, access: Access) -> dict[str, object]:
    return {
        "id": delivery_id(consumer, subscription, event.id, replay),
        "consumer": consumer,
        "subscription": subscription,
        "event_sequence": event.sequence,
        "key": event.key,
        "replay": replay,
        "access": access.value,
    }


def _supersede(transaction: Transaction, row: Mapping[str, object], now: datetime) -> None:
    names: Iterable[str] = ("consumer", "subscription", "key", "event_sequence")
    transaction.execute(_SUPERSEDE, now=now, **{name: row[name] for name in names})


def _check(before: DeliveryState, after: DeliveryState, delivery_id: str, *, asked: bool = False) -> None:
    if after not in TRANSITIONS[before] or (asked and before is not DeliveryState.DEAD):
        raise DeliveryRefused(
            f"Delivery {delivery_id} is {before} and cannot become {after}.",
            remedy="Only a dead delivery can be tried again; use 'podium events replay' for others.",
        )


def _claimed(delivery: Delivery, epoch: int, now: datetime, *, alone: bool) -> Delivery:
    return replace(
        delivery,
        state=DeliveryState.RUNNING,
        attempts=delivery.attempts + 1,
        epoch=epoch,
        changed_at=now,
        alone=alone,
    )


def _delivery(row: Row) -> Delivery:
    id, position, consumer, subscription, replay, access, state, attempts, epoch = row[:9]
    due_at, created_at, changed_at, error, waits_for = row[9:14]
    return Delivery(
        id=id,
        position=position,
        consumer=consumer,
        subscription=subscription,
        event=event_of(row[14:]),
        replay=replay,
        access=Access(access),
        state=DeliveryState(state),
        attempts=attempts,
        epoch=epoch,
        due_at=to_time(due_at),
        created_at=to_time(created_at),
        changed_at=to_time(changed_at),
        error=error,
        waits_for=waits_for,
    )
