"""The run journal: what was asked for, who carries it out, how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from registry.content.kinds import Kind
from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.errors import RunNotFound, RunRefused
from registry.events import EventType
from registry.resources import Resources
from registry.runs import (
    ENDED,
    Attempt,
    Cause,
    Claim,
    LogPart,
    NewOutput,
    Run,
    RunError,
    RunRequest,
    RunState,
    lease_name,
    pool_after,
)
from registry.store import run_attempts, run_claims, run_queue, run_rows, values
from registry.store.files import FileStore
from registry.store.session import Session, to_json
from registry.suggesting import did_you_mean
from registry.values import Role

_BY_KEY = sql("SELECT id FROM run WHERE key = :key")
_BY_PREFIX = sql("SELECT id FROM run WHERE id >= :first AND id < :after ORDER BY id LIMIT :limit")
_LISTED = 8  # ids that begin alike, where one was to be told
_NEWEST = sql("SELECT id FROM run ORDER BY queued_at DESC LIMIT 1000")
_LIST = sql(f"""
    SELECT {run_rows.COLUMNS} FROM run
    WHERE (CAST(:state AS TEXT) IS NULL OR state = :state)
      AND (CAST(:task AS TEXT) IS NULL OR task = :task)
      AND (CAST(:parent AS TEXT) IS NULL OR parent = :parent)
      AND (CAST(:before AS TEXT) IS NULL OR (queued_at, id) < (
          SELECT last.queued_at, last.id FROM run last WHERE last.id = :before
      ))
    ORDER BY queued_at DESC, id DESC LIMIT :limit
""")
_SET_ROLE = sql("UPDATE run_input SET role = :role WHERE run = :run AND parameter = :parameter")
_NOTE = sql("UPDATE attempt SET environment = :environment WHERE run = :run AND number = :number")
_ATTEMPTS = sql("""
    SELECT number, worker, epoch, started_at, ended_at, outcome, cause, error, environment
    FROM attempt WHERE run = :run ORDER BY number
""")
_LAST_PART = sql("SELECT COALESCE(MAX(sequence), 0) FROM run_log WHERE run = :run")
_ADD_PART = sql("""
    INSERT INTO run_log (run, sequence, attempt, data) VALUES (:run, :sequence, :attempt, :data)
""")
_PARTS = sql("""
    SELECT run, attempt, sequence, data FROM run_log WHERE run = :run AND sequence > :after
    ORDER BY sequence LIMIT :limit
""")
_NEWEST_PARTS = sql("""
    SELECT run, attempt, sequence, data FROM (
        SELECT run, attempt, sequence, data FROM run_log WHERE run = :run AND sequence > :after
        ORDER BY sequence DESC LIMIT :limit
    ) newest ORDER BY sequence
""")
_RECOVER = sql("""
    UPDATE run SET state = 'queued', ended_at = NULL, done = NULL, not_before = NULL, pool = :pool,
                   counted_from = attempts, queued_at = :now, expires_at = :expires_at
    WHERE id = :run AND state = :state
""")
_SET_CODE = sql("UPDATE run SET code = :code WHERE id = :run")


class StoredRuns:
    """`registry.protocol.Runs` over the database."""

    def __init__(self, session: Session, files: FileStore) -> None:
        self._session = session
        self._files = files

    def queue(self, request: RunRequest) -> Run:
        wanted = run_queue.resolve(self._session, self._files, request)
        with self._session.writing() as transaction:
            run_id = run_queue.insert(transaction, self._session, wanted)
            if run_id is None:
                return run_rows.load(transaction, transaction.one(_BY_KEY, key=request.key)[0])
            run = run_rows.load(transaction, run_id)
            run_attempts.emit(self._session, transaction, EventType.RUN_QUEUED, run)
            return run

    def get(self, run: str) -> Run:
        found = self._get(run)
        return self._get(found.id) if self._waited_too_long([found]) else found

    def _get(self, run: str) -> Run:
        with self._session.reading() as reader:
            return run_rows.load(reader, self._full_id(reader, run))

    def _waited_too_long(self, found: Sequence[Run]) -> bool:
        """End those that have waited longer than they may, which nobody else does where no worker lives."""
        limited = any(
            run.state is RunState.QUEUED and (run.conditions.queue_timeout or run.conditions.deadline)
            for run in found
        )
        return limited and bool(run_attempts.expire(self._session))

    def _full_id(self, reader: Transaction, run: str) -> str:
        found = reader.all(_BY_PREFIX, first=run, after=run + "~", limit=2) if run else []
        if len(found) == 1 or (found and found[0][0] == run):
            return str(found[0][0])
        if found:
            several = reader.all(_BY_PREFIX, first=run, after=run + "~", limit=_LISTED)
            listed = ", ".join(each for (each,) in several)
            raise RunNotFound(
                f"'{run[:40]}' begins several run ids.", remedy=f"Give more of the id: {listed}."
            )
        newest = [each for (each,) in reader.all(_NEWEST)]
        raise RunNotFound(
            f"There is no run '{run[:40]}'.", remedy=did_you_mean(run, newest, "See 'podium runs list'.")
        )

    def list(
        self,
        *,
        state: RunState | None = None,
        task: str | None = None,
        parent: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Run]:
        asked = {
            "state": state.value if state else None,
            "task": task,
            "parent": parent,
            "before": before,
            "limit": limit,
        }
        found = self._list(**asked)
        return [*self._list(**asked)] if self._waited_too_long(found) else [*found]

    def _list(self, **asked: Any) -> Sequence[Run]:
        with self._session.reading() as reader:
            return [run_rows.run(reader, row) for row in reader.all(_LIST, **asked)]

    def attempts(self, run: str) -> Sequence[Attempt]:
        with self._session.reading() as reader:
            return [run_rows.attempt(row) for row in reader.all(_ATTEMPTS, run=run)]

    def claim(
        self,
        worker: str,
        *,
        free: Resources,
        total: Resources,
        pool: str = "default",
        only: str | None = None,
        limit: int = 16,
        lenient: bool = False,
    ) -> Sequence[Claim]:
        return run_claims.claim(self._session, worker, free, total, pool, only, limit, lenient)

    def set_roles(self, run: str, roles: Mapping[str, Role]) -> None:
        with self._session.writing() as transaction:
            for parameter, role in roles.items():
                transaction.execute(_SET_ROLE, run=run, parameter=parameter, role=role.value)

    def note(self, run: str, attempt: int, environment: Mapping[str, Any]) -> None:
        with self._session.writing() as transaction:
            transaction.execute(_NOTE, run=run, number=attempt, environment=to_json(dict(environment)))

    def finish(self, run: str, outputs: Sequence[NewOutput], *, result: Any = None) -> Run:
        # Reports are read from the store before the transaction begins, so that nobody waits for the network.
        stored = [
            (output, None if output.value else self._files.stored(output.kind, output.digest))
            for output in outputs
        ]
        return run_attempts.finish(self._session, run, stored, result)

    def end(self, run: str, cause: Cause, error: RunError | None = None) -> Run:
        return run_attempts.end(self._session, run, cause, error)

    def expire(self) -> Sequence[Run]:
        return run_attempts.expire(self._session)

    def cancel(self, run: str) -> Run:
        with self._session.writing() as transaction:
            run_id = self._full_id(transaction, run)
            there = run_rows.load(transaction, run_id)
            if there.state is RunState.CANCELLED:
                return there
            if there.state in (RunState.SUCCEEDED, RunState.FAILED):
                raise RunRefused(f"Run {run_id} has {there.state} already.", remedy="Nothing was changed.")
            return run_attempts.cancel_in(transaction, self._session, run_id)

    def recover(self, run: str, *, code: str | None = None, take_over: bool = False) -> Run:
        files = self._files.stored(Kind.BUNDLE, code) if code else None
        with self._session.writing() as transaction:
            run_id = self._full_id(transaction, run)
            there = run_rows.load(transaction, run_id)
            _check_recoverable(there, take_over)
            if files is not None:
                value = values.value_for(transaction, self._session, files)
                transaction.execute(_SET_CODE, run=run_id, code=value)
            if there.state is RunState.RUNNING:
                run_attempts.fence(transaction, lease_name(run_id), self._session.origin.actor)
                return run_attempts.end_in(transaction, self._session, run_id, Cause.TAKEN_OVER, None)
            if there.state is RunState.QUEUED:
                return there
            pool = pool_after(there.pool, Cause.STOPPED)
            now = self._session.now()
            transaction.execute(
                _RECOVER,
                run=run_id,
                state=there.state.value,
                pool=pool,
                now=now,
                expires_at=there.conditions.expires(now, now),
            )
            run_attempts.mark_again(transaction, run_id)
            recovered = run_rows.load(transaction, run_id)
            run_attempts.emit(self._session, transaction, EventType.RUN_QUEUED, recovered)
            return recovered

    def append_log(self, run: str, attempt: int, data: bytes) -> None:
        with self._session.writing() as transaction:
            last = int(transaction.one(_LAST_PART, run=run)[0])
            transaction.execute(_ADD_PART, run=run, sequence=last + 1, attempt=attempt, data=data)

    def log(self, run: str, *, after: int = 0, limit: int = 100, newest: bool = False) -> Sequence[LogPart]:
        with self._session.reading() as reader:
            rows = reader.all(_NEWEST_PARTS if newest else _PARTS, run=run, after=after, limit=limit)
            return [LogPart(r, attempt, sequence, bytes(data)) for r, attempt, sequence, data in rows]


def _check_recoverable(run: Run, take_over: bool) -> None:
    if run.parent is not None:
        raise RunRefused(
            f"Run {run.id} is a step of {run.root}.", remedy=f"Recover that: podium runs recover {run.root}."
        )
    if run.state not in ENDED and not take_over:
        raise RunRefused(
            f"Run {run.id} lives: it is {run.state}.",
            remedy="Wait for its end, or give --take-over to fence it and go on from there.",
        )
    if run.state in (RunState.SUCCEEDED, RunState.CANCELLED):
        raise RunRefused(
            f"Run {run.id} is {run.state}.",
            remedy="Only what failed or was interrupted is recovered; 'podium runs rerun' does it anew.",
        )
