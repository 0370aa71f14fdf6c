"""Measures of runs, recorded under the run's authority alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from registry.database.engine import Row
from registry.database.statements import sql
from registry.measures import Measure, MeasurePart, check_measures
from registry.store.run_authority import require_own, running_attempt
from registry.store.session import Session, to_json

_LAST = sql("SELECT COALESCE(MAX(sequence), 0) FROM run_measure WHERE run = :run")
_ADD = sql("""
    INSERT INTO run_measure (run, sequence, attempt, measures) VALUES (:run, :sequence, :attempt, :measures)
""")
_PARTS = sql("""
    SELECT run, attempt, sequence, measures FROM run_measure WHERE run = :run AND sequence > :after
    ORDER BY sequence LIMIT :limit
""")


class StoredMeasures:
    """`registry.protocol.Measures` over the database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, run: str, measures: Sequence[Measure]) -> None:
        check_measures(measures)
        self._require_own(run)
        kept = to_json([[each.step, dict(each.numbers)] for each in measures])
        with self._session.writing() as transaction:
            attempt = running_attempt(transaction, run)
            last = int(transaction.one(_LAST, run=run)[0])
            transaction.execute(_ADD, run=run, sequence=last + 1, attempt=attempt, measures=kept)

    def of(self, run: str, *, after: int = 0, limit: int = 1000) -> Sequence[MeasurePart]:
        with self._session.reading() as reader:
            return [_part(row) for row in reader.all(_PARTS, run=run, after=after, limit=limit)]

    def _require_own(self, run: str) -> None:
        """Only the run itself says what it measures."""
        message = f"Run {run} reports its measures itself."
        require_own(self._session, run, message, "Report them from inside its task.")


def _part(row: Row) -> MeasurePart:
    run, attempt, sequence, measures = row
    return MeasurePart(
        run, attempt, sequence, [Measure(step, numbers) for step, numbers in json.loads(measures)]
    )
