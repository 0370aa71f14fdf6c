"""Checkpoints of runs: stored before they are recorded, recorded under the run's authority alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.checkpoints import TRAINING, CheckpointState, SavedCheckpoint, surplus
from registry.content.kinds import Kind
from registry.crashpoints import reached
from registry.database.engine import Row, to_time
from registry.database.statements import sql
from registry.errors import InvalidInput
from registry.store import values
from registry.store.files import FileStore
from registry.store.run_authority import require_own, running_attempt
from registry.store.session import Session, check_text, to_json
from registry.store.values import StoredFiles

_COLUMNS = """
    k.run, k.series, k.number, k.step, k.digest, c.size, k.bytes_sent, k.attempt, k.saved_at, k.state,
    k.reason, k.metadata_json
"""
_OF_RUN = sql(f"""
    SELECT {_COLUMNS} FROM checkpoint k JOIN content c ON c.digest = k.digest
    WHERE k.run = :run AND (CAST(:series AS TEXT) IS NULL OR k.series = :series)
    ORDER BY k.series, k.number DESC
""")
_LAST = sql("SELECT COALESCE(MAX(number), 0) FROM checkpoint WHERE run = :run AND series = :series")
_PUT = sql("""
    INSERT INTO checkpoint (run, series, number, step, digest, bytes_sent, attempt, saved_at, state, reason,
                            metadata_json)
    VALUES (:run, :series, :number, :step, :digest, :bytes_sent, :attempt, :now, 'whole', '', :metadata)
""")
_REMOVE = sql("DELETE FROM checkpoint WHERE run = :run AND series = :series AND number = :number")
_DAMAGE = sql("""
    UPDATE checkpoint SET state = 'damaged', reason = :reason
    WHERE run = :run AND series = :series AND number = :number
""")


class StoredCheckpoints:
    """`registry.protocol.Checkpoints` over the database."""

    def __init__(self, session: Session, files: FileStore) -> None:
        self._session = session
        self._files = files

    def save(
        self,
        run: str,
        step: int,
        path: Path,
        *,
        series: str = TRAINING,
        keep: int = 2,
        metadata: Mapping[str, Any] | None = None,
    ) -> SavedCheckpoint:
        _check(series, step, keep)
        self._require_own(run)
        files = self._files.upload(path, Kind.CHECKPOINT)
        reached("checkpoint.uploaded")
        return self.record(run, step, files, series=series, keep=keep, metadata=metadata)

    def record(
        self,
        run: str,
        step: int,
        files: StoredFiles,
        *,
        series: str = TRAINING,
        keep: int = 2,
        metadata: Mapping[str, Any] | None = None,
    ) -> SavedCheckpoint:
        """`save` of what is in the store already."""
        _check(series, step, keep)
        self._require_own(run)
        with self._session.writing() as transaction:
            attempt = running_attempt(transaction, run)
            number = int(transaction.one(_LAST, run=run, series=series)[0]) + 1
            values.put_content(transaction, files.manifest)
            transaction.execute(
                _PUT,
                run=run,
                series=series,
                number=number,
                step=step,
                digest=files.digest,
                bytes_sent=files.bytes_sent,
                attempt=attempt,
                metadata=to_json(dict(metadata or {})),
                now=self._session.now(),
            )
            saved = [_checkpoint(row) for row in transaction.all(_OF_RUN, run=run, series=series)]
            for each in surplus(saved, keep):
                transaction.execute(_REMOVE, run=run, series=series, number=each.number)
        reached("checkpoint.recorded")
        return next(each for each in saved if each.number == number)

    def _require_own(self, run: str) -> None:
        """Only the run itself says how far it is."""
        message = f"Run {run} saves its checkpoints itself."
        require_own(self._session, run, message, "Save them from inside its task.")

    def of(self, run: str, series: str | None = None) -> Sequence[SavedCheckpoint]:
        with self._session.reading() as reader:
            return [_checkpoint(row) for row in reader.all(_OF_RUN, run=run, series=series)]

    def mark_damaged(self, checkpoint: SavedCheckpoint, reason: str) -> None:
        self._require_own(checkpoint.run)
        self._files.remove_damaged_chunks(checkpoint.digest)
        with self._session.writing() as transaction:
            transaction.execute(
                _DAMAGE,
                run=checkpoint.run,
                series=checkpoint.series,
                number=checkpoint.number,
                reason=check_text(reason[:1000], "The reason"),
            )


def _check(series: str, step: int, keep: int) -> None:
    check_text(series, "The name of a series", longest=100)
    if step < 0 or keep < 1:
        raise InvalidInput(
            f"A checkpoint at step {step} of which {keep} are kept cannot be.",
            remedy="Steps count from 0; keep at least 1.",
        )


def _checkpoint(row: Row) -> SavedCheckpoint:
    run, series, number, step, digest, size, bytes_sent, attempt, saved_at, state, reason, metadata = row
    return SavedCheckpoint(
        run,
        series,
        number,
        step,
        digest,
        size,
        bytes_sent,
        attempt,
        to_time(saved_at),
        CheckpointState(state),
        reason,
        json.loads(metadata),
    )
