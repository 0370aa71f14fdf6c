"""Steps: runs at a place in another run, each asked for once, reused, repeated or taken from the cache."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from registry.database.engine import Transaction, UniqueViolation
from registry.database.statements import sql
from registry.errors import InvalidInput, RunRefused
from registry.events import EventType
from registry.runs import INLINE, PRIVATE, Run, RunError, RunRequest, RunState
from registry.store import run_attempts, run_queue, run_rows
from registry.store.files import FileStore
from registry.store.run_queue import Wanted
from registry.store.session import Session, to_json

_SEQUENCE = "(SELECT event_sequence FROM podium WHERE one = 1)"
_AT_PLACE = sql("SELECT id FROM run WHERE parent = :parent AND place = :place")
_MADE = sql("""
    SELECT id FROM run WHERE cache_key = :key AND state = 'succeeded' AND source IS NULL
    ORDER BY ended_at LIMIT 1
""")
_FLIGHT = sql("""
    SELECT id FROM run
    WHERE cache_key = :key AND state IN ('queued', 'running') AND waits_for IS NULL AND id <> :run
""")
_ENDED = sql("SELECT 1 FROM run WHERE id = :run AND state NOT IN ('queued', 'running')")
_LIVING_STEP = sql(f"""
    SELECT 1 FROM run WHERE parent = :run AND state IN ('queued', 'running') AND pool <> '{INLINE}' LIMIT 1
""")
_WAIT_FOR = sql("UPDATE run SET waits_for = :other WHERE id = :run AND state = 'queued'")
_FLY_ALONE = sql(
    "UPDATE run SET waits_for = NULL, cache_key = NULL WHERE id = :run AND state = 'queued' AND "
    "waits_for IS NOT NULL"
)
_REUSE = sql(f"""
    UPDATE run SET state = :state, source = :source, result = :result, error = :error, waits_for = NULL,
                   again = FALSE, started_at = :started, ended_at = :ended, done = {_SEQUENCE}
    WHERE id = :run AND state = 'queued'
""")
_COPY_OUTPUTS = sql("""
    INSERT INTO run_output (run, name, value, ref) SELECT :run, name, value, ref FROM run_output
    WHERE run = :source
""")
_REPEAT = sql(f"""
    UPDATE run SET state = 'queued', again = FALSE, counted_from = attempts, started_at = NULL,
                   ended_at = NULL, done = NULL, not_before = NULL, error = NULL, pool = :pool, task = :task,
                   arguments = :arguments, code = :code, resources = :resources, publish = :publish,
                   retries = :retries, app = :app, signature = :signature, captured = :captured,
                   cache_key = :cache_key, waits_for = :waits_for, conditions = :conditions,
                   expires_at = :expires_at, queued_at = :now, asked = {_SEQUENCE}
    WHERE id = :run AND again AND state NOT IN ('queued', 'running', 'succeeded')
""")
_FORGET_INPUTS = sql("DELETE FROM run_input WHERE run = :run")
_FORGET_CHECKPOINTS = sql("DELETE FROM checkpoint WHERE run = :run")
# One write, when it is done. A word at its beginning would help nobody: its driver does it again anyway.
_RECORD = sql(f"""
    INSERT INTO run (id, task, state, arguments, code, resources, pool, retries, attempts, app, parent, root,
                     depth, turn, place, signature, again, counted_from, asked, done, actor, causation,
                     correlation, captured, result, error, queued_at, started_at, ended_at)
    SELECT :id, :task, :state, :arguments, code, '{{}}', '{INLINE}', 0, 0, app, id, root, depth + 1, turn,
           :place, :signature, FALSE, 0, {_SEQUENCE}, {_SEQUENCE}, :actor, causation, correlation, '{{}}',
           :result, :error, :began, :began, :now
    FROM run WHERE id = :parent
    ON CONFLICT (parent, place) DO UPDATE SET
        task = excluded.task, state = excluded.state, arguments = excluded.arguments,
        signature = excluded.signature, again = FALSE, done = excluded.done, result = excluded.result,
        error = excluded.error, started_at = excluded.started_at, ended_at = excluded.ended_at
    WHERE run.state <> 'succeeded'
    RETURNING id
""")
_RESULT = sql("SELECT result FROM run WHERE parent = :parent AND place = :place")
_COPY_STEP = sql("""
    INSERT INTO run (id, task, state, arguments, code, resources, pool, publish, retries, attempts, app,
                     parent, root, depth, turn, place, signature, source, again, counted_from, asked, done,
                     actor, causation, correlation, captured, result, error, queued_at, started_at, ended_at)
    SELECT :id, task, state, arguments, code, resources, pool, publish, retries, 0, app,
           :parent, :root, :depth, turn, place, signature, COALESCE(source, id), FALSE, 0, asked, done,
           actor, causation, correlation, captured, result, error, queued_at, started_at, ended_at
    FROM run WHERE id = :step
""")
_COPY_INPUTS = sql("""
    INSERT INTO run_input (run, parameter, value, role, ref) SELECT :run, parameter, value, role, ref
    FROM run_input WHERE run = :source
""")
_TRIES = 10


class StoredSteps:
    """`registry.protocol.Steps` over the database."""

    def __init__(self, session: Session, files: FileStore) -> None:
        self._session = session
        self._files = files

    def of(self, run: str) -> Sequence[Run]:
        with self._session.reading() as reader:
            return run_rows.children(reader, run)

    def ask(self, request: RunRequest) -> Run:
        _require_place(request)
        wanted = run_queue.resolve(self._session, self._files, request)
        return self._unless_raced(lambda transaction: self._ask(transaction, wanted))

    def _unless_raced(self, act: Callable[[Transaction], Run]) -> Run:
        """Another may ask for the same cached work in the same moment; then it is there at the next look."""
        for _ in range(_TRIES):
            try:
                with self._session.writing() as transaction:
                    return act(transaction)
            except UniqueViolation:
                continue
        raise RunRefused("Others ask for the same step without end.", remedy="Try again.")

    def _ask(self, transaction: Transaction, wanted: Wanted) -> Run:
        request = wanted.request
        there = transaction.first(_AT_PLACE, parent=request.parent, place=request.place)
        if there is not None:
            return run_rows.load(transaction, there[0])
        flight = self._flight(transaction, request.cache_key, "")
        run_id = run_queue.insert(transaction, self._session, wanted, waits_for=flight)
        assert run_id is not None  # steps have no key of the journal's
        if request.kept:
            _copy_steps(transaction, run_rows.load(transaction, run_id), request.kept)
        return self._settle(transaction, run_id, request.cache_key)

    def _flight(self, transaction: Transaction, key: str | None, run: str) -> str | None:
        """The run that does the cached work at this moment."""
        found = transaction.first(_FLIGHT, key=key, run=run) if key else None
        return str(found[0]) if found else None

    def _settle(self, transaction: Transaction, run_id: str, key: str | None) -> Run:
        """A queued step as its cache key has it: done already, waiting for another, or to be done."""
        made = transaction.first(_MADE, key=key) if key else None
        if made is not None:
            return self._reuse(transaction, run_id, run_rows.load(transaction, made[0]))
        flight = self._flight(transaction, key, run_id)
        transaction.execute(_WAIT_FOR, run=run_id, other=flight)
        run = run_rows.load(transaction, run_id)
        if flight is None:
            run_attempts.emit(self._session, transaction, EventType.RUN_QUEUED, run)
        return run

    def _reuse(self, transaction: Transaction, run_id: str, made: Run) -> Run:
        now = self._session.now()
        reused = transaction.execute(
            _REUSE,
            run=run_id,
            state=made.state.value,
            source=made.source or made.id,
            result=None if made.result is None else to_json(made.result),
            error=None,
            started=now,
            ended=now,
        )
        if reused:
            transaction.execute(_COPY_OUTPUTS, run=run_id, source=made.id)
        return run_rows.load(transaction, run_id)

    def settle(self, run: str, *, impatient: bool = False) -> Run:
        return self._unless_raced(lambda transaction: self._settle_waiting(transaction, run, impatient))

    def _settle_waiting(self, transaction: Transaction, run_id: str, impatient: bool) -> Run:
        run = run_rows.load(transaction, run_id)
        if run.state is not RunState.QUEUED or run.waits_for is None:
            return run
        if transaction.first(_ENDED, run=run.waits_for) is not None:
            return self._settle(transaction, run_id, run.cache_key)
        if impatient and transaction.execute(_FLY_ALONE, run=run_id):
            return self._settle(transaction, run_id, None)
        return run

    def again(self, run: str, request: RunRequest) -> Run:
        wanted = run_queue.resolve(self._session, self._files, request)
        return self._unless_raced(lambda transaction: self._again(transaction, run, wanted))

    def _again(self, transaction: Transaction, run_id: str, wanted: Wanted) -> Run:
        before = run_rows.load(transaction, run_id)
        key = wanted.request.cache_key
        private = before.pool if before.pool.startswith(PRIVATE) else wanted.request.pool
        repeated = transaction.execute(
            _REPEAT,
            run=run_id,
            code=run_queue.code_value(transaction, self._session, wanted),
            pool=private,
            cache_key=key,
            waits_for=self._flight(transaction, key, run_id),
            now=self._session.now(),
            **run_queue.asked_with(wanted.request),
            **run_queue.waiting(wanted.request, self._session.now()),
        )
        if not repeated:
            return before
        transaction.execute(_FORGET_INPUTS, run=run_id)
        run_queue.put_inputs(transaction, run_id, wanted.inputs)
        if before.signature != wanted.request.signature:
            transaction.execute(_FORGET_CHECKPOINTS, run=run_id)  # they continue something else
        run_attempts.mark_again(transaction, run_id)
        return self._settle(transaction, run_id, key)

    def ended(self, runs: Collection[str]) -> Sequence[Run]:
        with self._session.reading() as reader:
            return [run_rows.load(reader, run) for run in runs if reader.first(_ENDED, run=run) is not None]

    def awaiting(self, runs: Collection[str]) -> set[str]:
        with self._session.reading() as reader:
            return {run for run in runs if reader.first(_LIVING_STEP, run=run) is not None}

    def record(
        self, request: RunRequest, began: datetime, *, result: Any = None, error: RunError | None = None
    ) -> Any:
        _require_place(request)
        inputs = run_queue.resolve(self._session, self._files, replace(request, code=None)).inputs
        with self._session.writing() as transaction:
            recorded = transaction.first(
                _RECORD,
                id=uuid.uuid4().hex[:12],
                parent=request.parent,
                place=request.place,
                task=request.task,
                state=(RunState.FAILED if error else RunState.SUCCEEDED).value,
                arguments=to_json(dict(request.arguments)),
                signature=request.signature,
                result=None if result is None else to_json(result),
                error=to_json(asdict(error)) if error else None,
                actor=self._session.origin.actor,
                began=began,
                now=self._session.now(),
            )
            if recorded is None:  # it was there
                kept = transaction.one(_RESULT, parent=request.parent, place=request.place)
                return run_rows.plain(kept[0])
            if inputs:
                transaction.execute(_FORGET_INPUTS, run=recorded[0])
                run_queue.put_inputs(transaction, recorded[0], inputs)
            return result

    # Forks

    def fork(self, request: RunRequest, kept: Sequence[str]) -> Run:
        wanted = run_queue.resolve(self._session, self._files, request)
        with self._session.writing() as transaction:
            run_id = run_queue.insert(transaction, self._session, wanted)
            assert run_id is not None
            run = run_rows.load(transaction, run_id)
            _copy_steps(transaction, run, kept)
            run_attempts.emit(self._session, transaction, EventType.RUN_QUEUED, run)
            return run


def _require_place(request: RunRequest) -> None:
    if request.parent is None or request.place is None:
        raise InvalidInput(
            f"The step '{request.task}' has no run that it is part of, or no place there.",
            remedy="Name both 'parent' and 'place'.",
        )


def _copy_steps(transaction: Transaction, run: Run, kept: Sequence[str]) -> None:
    """Give ``run`` the steps ``kept`` (run ids) of another as its own."""
    above = {"parent": run.id, "root": run.root, "depth": run.depth + 1}
    copies = [{"id": uuid.uuid4().hex[:12], "step": step, **above} for step in kept]
    transaction.execute_many(_COPY_STEP, copies)
    rows = [{"run": copy["id"], "source": copy["step"]} for copy in copies]
    transaction.execute_many(_COPY_INPUTS, rows)
    transaction.execute_many(_COPY_OUTPUTS, rows)
