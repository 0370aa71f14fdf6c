"""Attempts: the one transaction that ends a run, or that decides what follows when it came to nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from registry.conditions import Conditions
from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.errors import StaleAuthority
from registry.events import EventType, RunChanged
from registry.runs import (
    RESULT,
    SPENDS_RETRY,
    Cause,
    NewOutput,
    Next,
    Run,
    RunError,
    RunState,
    after_attempt,
    lease_name,
    pool_after,
)
from registry.steps import to_repeat
from registry.store import publishing, run_rows
from registry.store.session import Session, to_json
from registry.store.values import StoredFiles, find_parents
from registry.values import Lease, Parent, Role

_STATE = sql("SELECT state, attempts, retries, pool, counted_from FROM run WHERE id = :run {lock}")
_CONDITIONS = sql("SELECT conditions, queued_at FROM run WHERE id = :run")
_EXPIRED = sql("SELECT id, queued_at FROM run WHERE state = 'queued' AND expires_at <= :now LIMIT 100")
_FAIL_QUEUED = sql("""
    UPDATE run SET state = 'failed', ended_at = :now, error = :error, waits_for = NULL,
                   done = (SELECT event_sequence FROM podium WHERE one = 1)
    WHERE id = :run AND state = 'queued'
""")
_EARLIER = sql("""
    SELECT number, cause FROM attempt
    WHERE run = :run AND number > :counted_from AND number < :number AND cause IS NOT NULL
""")
# The last attempt in which something was saved, or a step came to its end: from there on it is another place.
_CAME_FURTHER = sql("""
    SELECT COALESCE(MAX(a.number), 0) FROM attempt a
    WHERE a.run = :run AND (
        EXISTS (SELECT 1 FROM checkpoint k WHERE k.run = a.run AND k.attempt = a.number)
        OR EXISTS (SELECT 1 FROM run s WHERE s.parent = a.run AND s.state = 'succeeded'
                   AND s.ended_at >= a.started_at))
""")
_LIVING_STEPS = sql("SELECT id, state FROM run WHERE parent = :run AND state IN ('queued', 'running')")
_CANCEL_STEP = sql("""
    UPDATE run SET state = 'cancelled', ended_at = :now, error = :error, waits_for = NULL,
                   done = (SELECT event_sequence FROM podium WHERE one = 1)
    WHERE id = :run AND state IN ('queued', 'interrupted', 'running')
""")
_MARK_AGAIN = sql("UPDATE run SET again = TRUE WHERE id = :run")
_END_ATTEMPT = sql("""
    UPDATE attempt SET ended_at = :now, outcome = :outcome, cause = :cause, error = :error
    WHERE run = :run AND number = :number AND outcome IS NULL
""")
_MOVE = sql("""
    UPDATE run SET state = :state, pool = :pool, ended_at = :ended, not_before = :not_before, error = :error,
                   expires_at = :expires_at, result = :result,
                   done = (SELECT event_sequence FROM podium WHERE one = 1)
    WHERE id = :run AND state = 'running'
""")
_CODE = sql("SELECT code FROM run WHERE id = :run")
_ADD_OUTPUT = sql("INSERT INTO run_output (run, name, value, ref) VALUES (:run, :name, :value, :ref)")
_FREE = sql("UPDATE lease SET holder = NULL WHERE name = :name")
_FENCE = sql("UPDATE lease SET holder = :holder, epoch = epoch + 1, beat = 0 WHERE name = :name")
_LEASE = sql("SELECT epoch, beat FROM lease WHERE name = :name")

_EVENTS = {
    RunState.SUCCEEDED: EventType.RUN_SUCCEEDED,
    RunState.FAILED: EventType.RUN_FAILED,
    RunState.INTERRUPTED: EventType.RUN_INTERRUPTED,
    RunState.QUEUED: EventType.RUN_INTERRUPTED,  # this attempt came to nothing, another follows
    RunState.CANCELLED: EventType.RUN_CANCELLED,
}
_OUTCOMES = {RunState.QUEUED: RunState.INTERRUPTED}


def finish(
    session: Session, run_id: str, outputs: Sequence[tuple[NewOutput, StoredFiles | None]], result: Any
) -> Run:
    """Make the outputs visible and end the run, in one transaction."""
    with session.writing() as transaction:
        number = _running(transaction, run_id)
        run = run_rows.load(transaction, run_id)
        for output, files in outputs:
            value, ref = _store_output(session, transaction, run, output, files)
            transaction.execute(_ADD_OUTPUT, run=run_id, name=output.name, value=value, ref=ref)
        _end_attempt(session, transaction, run_id, number, RunState.SUCCEEDED, None, None)
        _move(session, transaction, run_id, RunState.SUCCEEDED, pool=run.pool, result=result)
        transaction.execute(_FREE, name=lease_name(run_id))
        end_steps(transaction, session, run_id)  # nobody waits for what still runs of it
        finished = run_rows.load(transaction, run_id)
        emit(session, transaction, EventType.RUN_SUCCEEDED, finished)
        return finished


def _store_output(
    session: Session, transaction: Transaction, run: Run, output: NewOutput, files: StoredFiles | None
) -> tuple[str, str | None]:
    """Record one output with all that it was made from; (id of its value, its reference if it is named)."""
    value = output.value if files is None else _new_value(session, transaction, run, output, files)
    assert value is not None
    if run.publish is None or output.name != RESULT:
        return value, None
    version, _ = publishing.name_value(transaction, session, run.publish, value)
    return value, version.ref


def _new_value(
    session: Session, transaction: Transaction, run: Run, output: NewOutput, files: StoredFiles
) -> str:
    made_from = [Parent(each.value, each.role) for each in run.inputs]
    code = transaction.one(_CODE, run=run.id)[0]
    if code is not None:
        made_from.append(Parent(code, Role.CODE))
    parents = find_parents(transaction, [*made_from, *output.parents])
    return publishing.store_value(transaction, session, files, parents, run=run.id, metadata=output.metadata)


def _running(transaction: Transaction, run_id: str) -> int:
    """The number of the attempt that runs."""
    state, attempts, *_ = transaction.one(_STATE, run=run_id)
    if state != RunState.RUNNING:
        raise StaleAuthority(
            f"Run {run_id} does not run any more: it is {state}.", remedy="Nothing was written."
        )
    return int(attempts)


def end(session: Session, run_id: str, cause: Cause, error: RunError | None) -> Run:
    """End the attempt that runs, without success; the run goes where `after_attempt` says."""
    with session.writing() as transaction:
        return end_in(transaction, session, run_id, cause, error)


def end_in(
    transaction: Transaction, session: Session, run_id: str, cause: Cause, error: RunError | None
) -> Run:
    """`end` as part of a larger transaction. A run that has ended stays as it is; its lease is freed."""
    state, number, retries, pool, counted_from = transaction.one(_STATE, run=run_id)
    transaction.execute(_FREE, name=lease_name(run_id))
    if state != RunState.RUNNING:
        return run_rows.load(transaction, run_id)
    ended_by = transaction.all(_EARLIER, run=run_id, number=number, counted_from=counted_from)
    earlier = [Cause(each) for _, each in ended_by]
    kills = _kills_here(transaction, run_id, ended_by) if cause is Cause.KILLED else 0
    conditions, asked = _conditions(transaction, run_id)
    following = after_attempt(retries, earlier, cause, conditions.backoff, kills=kills)
    if following.state is RunState.QUEUED and cause in SPENDS_RETRY:
        begins = session.now() + timedelta(seconds=following.delay)
        following = Next(RunState.FAILED) if conditions.is_over(asked, begins) else following
    outcome = RunState.FAILED if cause in SPENDS_RETRY else _OUTCOMES.get(following.state, following.state)
    _end_attempt(session, transaction, run_id, number, outcome, cause, error)
    pool = pool_after(pool, cause)
    expires = conditions.expires(asked, session.now() + timedelta(seconds=following.delay))
    _move(
        session,
        transaction,
        run_id,
        following.state,
        pool=pool,
        delay=following.delay,
        expires=expires,
        error=error,
    )
    if following.state is not RunState.QUEUED:
        end_steps(transaction, session, run_id)
    elif cause in SPENDS_RETRY:
        mark_again(transaction, run_id)  # to try again is to try again what failed, not to fail by it again
    ended = run_rows.load(transaction, run_id)
    emit(session, transaction, _EVENTS[following.state], ended, cause)
    return ended


def _kills_here(transaction: Transaction, run_id: str, ended_by: Sequence[Row]) -> int:
    """How often it was killed before since it last came further."""
    (further,) = transaction.one(_CAME_FURTHER, run=run_id)
    return sum(each == Cause.KILLED and number >= further for number, each in ended_by)


def _conditions(transaction: Transaction, run_id: str) -> tuple[Conditions, datetime]:
    """On what conditions it is done, and when it was asked for."""
    stored, asked = transaction.one(_CONDITIONS, run=run_id)
    return Conditions.from_json(json.loads(stored)), to_time(asked)


def expire(session: Session) -> list[Run]:
    """Fail the queued runs that have waited for a worker longer than they may."""
    with session.reading() as reader:
        if not reader.all(_EXPIRED, now=session.now()):
            return []
    with session.writing() as transaction:
        found = transaction.all(_EXPIRED, now=session.now())
        ended = (_expire(session, transaction, run, to_time(asked)) for run, asked in found)
        return [run for run in ended if run is not None]


def _expire(session: Session, transaction: Transaction, run_id: str, asked: datetime) -> Run | None:
    now = session.now()
    waited = (now - asked).total_seconds()
    told = RunError(
        "TaskTimeoutError",
        f"It was not done {waited:.0f} s after it was asked for, and no worker had taken it.",
        remedy="Start a worker that it fits, or let it wait longer.",
        details={"waited": waited},
    )
    if transaction.execute(_FAIL_QUEUED, run=run_id, now=now, error=to_json(asdict(told))) != 1:
        return None  # a worker was faster
    end_steps(transaction, session, run_id)
    failed = run_rows.load(transaction, run_id)
    emit(session, transaction, EventType.RUN_FAILED, failed, Cause.TIMED_OUT)
    return failed


def end_steps(transaction: Transaction, session: Session, run_id: str) -> None:
    """Cancel what still lives of a run's steps, each with all below it, because the run has ended."""
    for step, _ in transaction.all(_LIVING_STEPS, run=run_id):
        cancel_in(transaction, session, step)


def cancel_in(transaction: Transaction, session: Session, run_id: str) -> Run:
    """End a run that has not ended, and all below it. What runs loses its lease first."""
    told = RunError("TaskCancelledError", f"It was cancelled by {session.origin.actor}.")
    lease = lease_name(run_id)
    state, *_ = transaction.one(_STATE, run=run_id)
    if state == RunState.RUNNING and transaction.first(_LEASE, name=lease) is not None:
        fence(transaction, lease, session.origin.actor)
        cancelled = end_in(transaction, session, run_id, Cause.CANCELLED, told)
        _allow_again(transaction, session, cancelled)
        return cancelled
    # Queued, or done by its driver itself: there is no attempt to be ended.
    transaction.execute(_CANCEL_STEP, run=run_id, now=session.now(), error=to_json(asdict(told)))
    end_steps(transaction, session, run_id)
    cancelled = run_rows.load(transaction, run_id)
    _allow_again(transaction, session, cancelled)
    emit(session, transaction, EventType.RUN_CANCELLED, cancelled, Cause.CANCELLED)
    return cancelled


def _allow_again(transaction: Transaction, session: Session, step: Run) -> None:
    """What a pipeline cancelled itself it asks for again when it is executed anew, and cancels again."""
    if step.parent is not None and session.origin.actor == f"run:{step.parent}":
        transaction.execute(_MARK_AGAIN, run=step.id)


def mark_again(transaction: Transaction, run_id: str) -> None:
    """Have the steps that came to nothing done again when the run's next execution asks for them."""
    for step in to_repeat(run_rows.children(transaction, run_id)):
        transaction.execute(_MARK_AGAIN, run=step.id)


def _end_attempt(
    session: Session,
    transaction: Transaction,
    run_id: str,
    number: int,
    outcome: RunState,
    cause: Cause | None,
    error: RunError | None,
) -> None:
    transaction.execute(
        _END_ATTEMPT,
        run=run_id,
        number=number,
        now=session.now(),
        outcome=outcome.value,
        cause=cause.value if cause else None,
        error=to_json(asdict(error)) if error else None,
    )


def _move(
    session: Session,
    transaction: Transaction,
    run_id: str,
    state: RunState,
    *,
    pool: str,
    delay: float = 0.0,
    expires: datetime | None = None,
    error: RunError | None = None,
    result: Any = None,
) -> None:
    now = session.now()
    transaction.execute(
        _MOVE,
        run=run_id,
        pool=pool,
        state=state.value,
        ended=None if state is RunState.QUEUED else now,
        expires_at=expires,
        not_before=now + timedelta(seconds=delay) if delay else None,
        error=to_json(asdict(error)) if error else None,
        result=None if result is None else to_json(result),
    )


def fence(transaction: Transaction, name: str, holder: str) -> Lease:
    """Take a lease from whoever holds it, whether they live or not."""
    transaction.execute(_FENCE, name=name, holder=holder)
    row = transaction.one(_LEASE, name=name)
    return Lease(name, holder, row[0], row[1])


def emit(
    session: Session, transaction: Transaction, type: EventType, run: Run, cause: Cause | None = None
) -> None:
    """Write the event of a run's change as part of ``transaction``."""
    data = RunChanged(
        run=run.id,
        task=run.task,
        state=run.state.value,
        attempt=run.attempts,
        cause=cause.value if cause else None,
        error=f"{run.error.type}: {run.error.message}" if run.error else None,
        outputs={output.name: output.ref or output.value for output in run.outputs},
    )
    session.emit(transaction, type, data, subject=f"run/{run.id}", key=f"run/{run.id}")
