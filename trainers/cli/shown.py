"""Runs as they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from registry.protocol import Registry
from registry.runs import RESULT, Attempt, Run, RunState
from trainers.results import fill

#: How states are coloured.
STATE_STYLES = {
    RunState.SUCCEEDED: "green",
    RunState.RUNNING: "cyan",
    RunState.FAILED: "red",
    RunState.INTERRUPTED: "yellow",
    RunState.CANCELLED: "yellow",
}

_PASSIVE = {RunState.CANCELLED, RunState.INTERRUPTED}


def ends(run: Run) -> str:
    """How a run ended, as a predicate: ``failed``, ``was cancelled``."""
    return f"was {run.state.value}" if run.state in _PASSIVE else run.state.value


def run_data(registry: Registry, run: Run) -> dict[str, Any]:
    """A run as JSON. ``result`` is the reference or value of what it returned, or the plain value itself."""
    outputs = {o.name: o.ref or o.value for o in run.outputs}
    return {
        "run": run.id,
        "task": run.task,
        "state": run.state.value,
        "result": result_of(run),
        "outputs": outputs,
        "arguments": dict(run.arguments),
        "inputs": {each.parameter: each.ref or each.value for each in run.inputs},
        "attempts": run.attempts,
        "pool": run.pool,
        "actor": run.actor,
        "queued_at": run.queued_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "error": asdict(run.error) if run.error else None,
    }


def result_of(run: Run) -> Any:
    """What a run returned, as plain JSON with references, or ids of values, in the places of artifacts."""
    outputs = {output.name: output.ref or output.value for output in run.outputs}
    if run.result is None:
        return outputs.get(RESULT, outputs or None)
    return fill(run.result, outputs)


def run_details(run: Run, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """What `podium runs show --json` adds."""
    return {
        "code": run.code,
        "resources": run.resources.to_json(),
        "publish": run.publish,
        "retries": run.retries,
        "captured": dict(run.captured),
        "attempt_list": [attempt_data(attempt) for attempt in attempts],
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "worker": attempt.worker,
        "epoch": attempt.epoch,
        "started_at": attempt.started_at.isoformat(),
        "ended_at": attempt.ended_at.isoformat() if attempt.ended_at else None,
        "outcome": attempt.outcome.value if attempt.outcome else None,
        "cause": attempt.cause.value if attempt.cause else None,
        "error": asdict(attempt.error) if attempt.error else None,
        "environment": dict(attempt.environment),
    }


def how_to_name(ended: Run) -> str:
    """How what a run made gets a name, where nothing of it has one. Reports count without."""
    nameless = [each for each in ended.outputs if each.ref is None and each.kind != "report"]
    if not nameless or len(nameless) < len(ended.outputs):
        return ""
    which = "" if any(each.name == RESULT for each in nameless) else f" --output {nameless[0].name}"
    return f"It has no name yet. Make it a version with: podium publish {ended.id} NAME{which}"
