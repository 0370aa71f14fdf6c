"""Which workers there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from registry.database.engine import to_time
from registry.database.statements import sql
from registry.resources import Resources
from registry.runs import Worker
from registry.store.session import Session, to_json

_FORGOTTEN = timedelta(hours=1)

_REGISTER = sql("""
    INSERT INTO worker (id, pool, capacity, host, process, started_at, seen_at)
    VALUES (:id, :pool, :capacity, :host, :process, :started_at, :now)
""")
_SEEN = sql("UPDATE worker SET seen_at = :now WHERE id = :id")
_LEAVE = sql("DELETE FROM worker WHERE id = :id")
_FORGET = sql("DELETE FROM worker WHERE seen_at < :before")
_ALL = sql("""
    SELECT id, pool, capacity, host, process, started_at, seen_at FROM worker
    WHERE seen_at >= :since AND (CAST(:pool AS TEXT) IS NULL OR pool = :pool) ORDER BY started_at DESC
""")


class StoredWorkers:
    """`registry.protocol.Workers` over the database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def register(self, worker: Worker) -> None:
        with self._session.writing() as transaction:
            transaction.execute(_FORGET, before=self._session.now() - _FORGOTTEN)
            transaction.execute(
                _REGISTER,
                id=worker.id,
                pool=worker.pool,
                capacity=to_json(worker.capacity.to_json()),
                host=worker.host,
                process=worker.process,
                started_at=worker.started_at,
                now=self._session.now(),
            )

    def seen(self, worker: str) -> None:
        with self._session.writing() as transaction:
            transaction.execute(_SEEN, id=worker, now=self._session.now())

    def leave(self, worker: str) -> None:
        with self._session.writing() as transaction:
            transaction.execute(_LEAVE, id=worker)

    def all(self, *, pool: str | None = None) -> Sequence[Worker]:
        with self._session.reading() as reader:
            rows = reader.all(_ALL, pool=pool, since=self._session.now() - _FORGOTTEN)
        return [
            Worker(
                id,
                pool_name,
                Resources.from_json(json.loads(capacity)),
                host,
                process,
                to_time(started),
                to_time(seen),
            )
            for id, pool_name, capacity, host, process, started, seen in rows
        ]
