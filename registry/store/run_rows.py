"""Rows of the journal as the values of `registry.runs`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from registry.conditions import Conditions
from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.errors import RunNotFound
from registry.references import Reference
from registry.resources import Resources
from registry.runs import Attempt, Cause, Run, RunError, RunInput, RunOutput, RunState
from registry.store import rows
from registry.values import Role

_CODE = "(SELECT value.digest FROM value WHERE value.id = run.code)"
_CAUSE = "(SELECT cause FROM attempt WHERE attempt.run = run.id ORDER BY number DESC LIMIT 1)"
_NAMES = """
    id, task, state, arguments, code, resources, pool, publish, retries, attempts, app, parent, root, depth,
    place, signature, source, cache_key, waits_for, again, asked, done, cause, key, actor, causation,
    correlation, captured, conditions, result, error, queued_at, not_before, started_at, ended_at
"""
COLUMNS = _NAMES.replace("code", _CODE, 1).replace(" cause,", f" {_CAUSE},", 1)
_GET = sql(f"SELECT {COLUMNS} FROM run WHERE id = :run")
_INPUTS = sql("""
    SELECT i.parameter, i.value, v.kind, v.digest, i.role, i.ref
    FROM run_input i JOIN value v ON v.id = i.value WHERE i.run = :run ORDER BY i.parameter
""")
_OUTPUTS = sql("""
    SELECT o.name, o.value, v.kind, v.digest, o.ref
    FROM run_output o JOIN value v ON v.id = o.value WHERE o.run = :run ORDER BY o.name
""")


_CHILDREN = sql(f"SELECT {COLUMNS} FROM run WHERE parent = :parent ORDER BY asked, queued_at, id")
_INPUTS_OF_CHILDREN = sql("""
    SELECT i.run, i.parameter, i.value, v.kind, v.digest, i.role, i.ref
    FROM run c JOIN run_input i ON i.run = c.id JOIN value v ON v.id = i.value
    WHERE c.parent = :parent ORDER BY i.parameter
""")
_OUTPUTS_OF_CHILDREN = sql("""
    SELECT o.run, o.name, o.value, v.kind, v.digest, o.ref
    FROM run c JOIN run_output o ON o.run = c.id JOIN value v ON v.id = o.value
    WHERE c.parent = :parent ORDER BY o.name
""")
_FIELDS = tuple(name.strip() for name in _NAMES.split(","))
_VALUE = sql("SELECT id, kind, digest FROM value WHERE id = :value")


def resolve_input(reader: Transaction, parameter: str, reference: str, role: Role) -> RunInput:
    """What a reference, or the id of a value, is now.

    Raises:
        InvalidReference, ArtifactNotFound, VersionNotFound, AliasNotFound.
    """
    value = reader.first(_VALUE, value=reference)
    if value is not None:
        return RunInput(parameter, value[0], value[1], value[2], role)
    version = rows.to_version(reader, rows.require(reader, Reference.parse(reference)))
    return RunInput(parameter, version.value, version.kind, version.digest, role, version.ref)


def load(reader: Transaction, run_id: str) -> Run:
    """The run of that id, or `RunNotFound`."""
    row = reader.first(_GET, run=run_id)
    if row is None:
        raise RunNotFound(f"There is no run '{run_id[:40]}'.", remedy="See 'podium runs list'.")
    return run(reader, row)


def run(reader: Transaction, row: Row) -> Run:
    """A run from its row (`COLUMNS`), with its inputs and outputs."""
    return _run(row, reader.all(_INPUTS, run=row[0]), reader.all(_OUTPUTS, run=row[0]))


def children(reader: Transaction, parent: str) -> list[Run]:
    """All that a run has asked for, in the order in which it did."""
    inputs, outputs = defaultdict(list), defaultdict(list)
    for owner, *rest in reader.all(_INPUTS_OF_CHILDREN, parent=parent):
        inputs[owner].append(tuple(rest))
    for owner, *rest in reader.all(_OUTPUTS_OF_CHILDREN, parent=parent):
        outputs[owner].append(tuple(rest))
    return [_run(row, inputs[row[0]], outputs[row[0]]) for row in reader.all(_CHILDREN, parent=parent)]


def _run(row: Row, inputs: Sequence[Row], outputs: Sequence[Row]) -> Run:
    named = dict(zip(_FIELDS, row, strict=True))
    return Run(
        **{
            **named,
            "state": RunState(named["state"]),
            "arguments": json.loads(named["arguments"]),
            "resources": Resources.from_json(json.loads(named["resources"])),
            "captured": json.loads(named["captured"]),
            "conditions": Conditions.from_json(json.loads(named["conditions"])),
            "result": plain(named["result"]),
            "error": error(named["error"]),
            **{name: _time(named[name]) for name in ("queued_at", "not_before", "started_at", "ended_at")},
            "again": bool(named["again"]),
            "cause": Cause(named["cause"]) if named["cause"] else None,
            "inputs": tuple(RunInput(p, v, k, d, Role(role), ref) for p, v, k, d, role, ref in inputs),
            "outputs": tuple(RunOutput(*o) for o in outputs),
        }
    )


def attempt(row: Row) -> Attempt:
    number, worker, epoch, started, ended, outcome, cause, failure, environment = row
    return Attempt(
        number,
        worker,
        epoch,
        to_time(started),
        _time(ended),
        RunState(outcome) if outcome else None,
        Cause(cause) if cause else None,
        error(failure),
        json.loads(environment),
    )


def error(stored: str | None) -> RunError | None:
    return RunError(**json.loads(stored)) if stored else None


def plain(stored: str | None) -> Any:
    """A column of JSON."""
    return None if stored is None else json.loads(stored)


def _time(stored: Any) -> Any:
    return None if stored is None else to_time(stored)
