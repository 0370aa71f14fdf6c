"""How many there are of what a server is asked about by its metrics: each a count in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from registry.database.engine import to_time
from registry.database.statements import Statement, sql
from registry.store.session import Session

_RUNS = sql("""
    SELECT state, pool, count(*) FROM run WHERE state IN ('queued', 'running') GROUP BY state, pool
""")
_OLDEST = sql("""
    SELECT pool, min(queued_at) FROM run WHERE state = 'queued' AND waits_for IS NULL GROUP BY pool
""")
_ATTEMPTS = sql("""
    SELECT outcome, coalesce(cause, ''), count(*) FROM attempt WHERE outcome IS NOT NULL
    GROUP BY outcome, coalesce(cause, '')
""")
_DELIVERIES = sql("""
    SELECT state, count(*) FROM delivery WHERE state IN ('pending', 'running', 'held', 'dead') GROUP BY state
""")
_WORKERS = sql("SELECT pool, count(*) FROM worker GROUP BY pool")
_LEASES = sql("SELECT count(*) FROM lease WHERE holder IS NOT NULL")


@dataclass(frozen=True, slots=True)
class Count:
    """So many of one sort; ``labels`` say which."""

    labels: tuple[str, ...]
    value: float


class StoredCounts:
    """Beside the protocol: for the server's metrics."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def runs(self) -> list[Count]:
        """By state and pool; those that have not ended."""
        return self._counts(_RUNS)

    def waiting(self) -> list[Count]:
        """By pool: seconds that the oldest queued run has waited."""
        now = self._session.now()
        with self._session.reading() as reader:
            rows = reader.all(_OLDEST)
        return [Count((pool,), _seconds(now, to_time(oldest))) for pool, oldest in rows]

    def attempts(self) -> list[Count]:
        """By outcome and cause: attempts that ended, since the registry began."""
        return self._counts(_ATTEMPTS)

    def deliveries(self) -> list[Count]:
        """By state; those that wait, run, or were given up."""
        return self._counts(_DELIVERIES)

    def workers(self) -> list[Count]:
        """By pool."""
        return self._counts(_WORKERS)

    def leases(self) -> int:
        """How many are held."""
        with self._session.reading() as reader:
            return int(reader.one(_LEASES)[0])

    def _counts(self, statement: Statement) -> list[Count]:
        with self._session.reading() as reader:
            return [Count(tuple(labels), float(count)) for *labels, count in reader.all(statement)]


def _seconds(now: datetime, then: datetime) -> float:
    return max(0.0, (now - then).total_seconds())
