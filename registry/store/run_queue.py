"""Asking for a run: the row that says what is wanted, at its place in the tree of runs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from registry.content.kinds import Kind
from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.errors import RunNotFound, RunRefused
from registry.runs import MOST_DEPTH, PRIVATE, RunInput, RunRequest
from registry.store import run_rows, values
from registry.store.files import FileStore
from registry.store.session import Session, to_json
from registry.store.values import StoredFiles
from registry.values import Role

_INSERT = sql("""
    INSERT INTO run (id, task, state, arguments, code, resources, pool, publish, retries, attempts, app,
                     parent, root, depth, turn, place, signature, cache_key, waits_for, again, counted_from,
                     asked, key, actor, causation, correlation, captured, conditions, expires_at,
                     queued_at)
    VALUES (:id, :task, 'queued', :arguments, :code, :resources, :pool, :publish, :retries, 0, :app,
            :parent, :root, :depth, :turn, :place, :signature, :cache_key, :waits_for, FALSE, 0,
            (SELECT event_sequence FROM podium WHERE one = 1), :key, :actor, :causation, :correlation,
            :captured, :conditions, :expires_at, :now)
    ON CONFLICT (key) DO NOTHING
""")
_INSERT_INPUT = sql("""
    INSERT INTO run_input (run, parameter, value, role, ref) VALUES (:run, :parameter, :value, :role, :ref)
""")
_ABOVE = sql("SELECT root, depth, turn, pool, correlation FROM run WHERE id = :parent")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request with its names resolved: content, not names, is what a run is given."""

    request: RunRequest
    inputs: tuple[RunInput, ...]
    code: StoredFiles | None


def resolve(session: Session, files: FileStore, request: RunRequest) -> Wanted:
    """Inputs as content: what a name means is decided once, when the run is asked for."""
    with session.reading() as reader:
        inputs = tuple(
            run_rows.resolve_input(reader, name, reference, request.roles.get(name, Role.PARENT))
            for name, reference in sorted(request.inputs.items())
        )
    return Wanted(request, inputs, files.stored(Kind.BUNDLE, request.code) if request.code else None)


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a run stands in its tree."""

    root: str
    depth: int
    turn: datetime
    pool: str
    correlation: str | None


def insert(
    transaction: Transaction, session: Session, wanted: Wanted, *, waits_for: str | None = None
) -> str | None:
    """Write the run down as queued; its id, or None where there is one with its key already."""
    request, run_id = wanted.request, uuid.uuid4().hex[:12]
    position = _position(transaction, session, request, run_id)
    inserted = transaction.execute(
        _INSERT,
        id=run_id,
        code=code_value(transaction, session, wanted),
        parent=request.parent,
        root=position.root,
        depth=position.depth,
        turn=position.turn,
        pool=position.pool,
        place=request.place,
        cache_key=request.cache_key,
        waits_for=waits_for,
        key=request.key,
        actor=session.origin.actor,
        causation=session.origin.causation,
        correlation=session.origin.correlation or position.correlation or run_id,
        now=session.now(),
        **asked_with(request),
        **waiting(request, session.now()),
    )
    if inserted != 1:
        return None
    put_inputs(transaction, run_id, wanted.inputs)
    return run_id


def asked_with(request: RunRequest) -> dict[str, Any]:
    """The columns that say what is asked for."""
    return {
        "task": request.task,
        "arguments": to_json(dict(request.arguments)),
        "resources": to_json(request.resources.to_json()),
        "publish": request.publish,
        "retries": request.retries,
        "app": request.app,
        "signature": request.signature,
        "captured": to_json(dict(request.captured)),
    }


def waiting(request: RunRequest, now: datetime) -> dict[str, Any]:
    """The columns that say on what conditions it is done, when it is asked for ``now``."""
    return {
        "conditions": to_json(request.conditions.to_json()),
        "expires_at": request.conditions.expires(now, now),
    }


def code_value(transaction: Transaction, session: Session, wanted: Wanted) -> str | None:
    """The value of the run's code."""
    return values.value_for(transaction, session, wanted.code) if wanted.code else None


def put_inputs(transaction: Transaction, run_id: str, inputs: Sequence[RunInput]) -> None:
    for each in inputs:
        transaction.execute(
            _INSERT_INPUT,
            run=run_id,
            parameter=each.parameter,
            value=each.value,
            role=each.role.value,
            ref=each.ref,
        )


def _position(transaction: Transaction, session: Session, request: RunRequest, run_id: str) -> _Position:
    """Below its parent, whose private worker it shares."""
    if request.parent is None:
        return _Position(run_id, 0, session.now(), request.pool, None)
    above = transaction.first(_ABOVE, parent=request.parent)
    if above is None:
        raise RunNotFound(f"There is no run '{request.parent[:40]}'.", remedy="See 'podium runs list'.")
    root, depth, turn, pool, correlation = above
    if depth >= MOST_DEPTH:
        raise RunRefused(
            f"Tasks that call tasks are {MOST_DEPTH} deep here, and '{request.task}' would be one more.",
            remedy="A task calls itself without end, or the pipeline should be flatter.",
        )
    private = pool.startswith(PRIVATE)
    return _Position(root, depth + 1, turn, pool if private else request.pool, correlation)
