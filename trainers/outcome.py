"""What a task's process tells its worker, in a file: what came of it, or why nothing did."""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from registry.capture import scrub
from registry.capture.secrets import scrub_values
from registry.errors import PodiumError
from registry.runs import Cause, NewOutput, RunError
from registry.values import Parent, Role
from trainers.binding import Outcome
from trainers.forkserver import HEAVY
from trainers.recognising import recognise
from trainers.secrets import Mask

_MOST_MESSAGE = 10_000  # characters; twice as many are searched for secrets, so that none is cut in two
_MOST_TRACEBACK = 50_000

_FILE = "outcome.json"
_LOADED = "loaded"
_OURS = {str(Path(__file__).with_name(name)) for name in ("child.py", "tasks.py")}


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Say what the task returned."""
    outputs = [
        {
            "name": o.name,
            "kind": o.kind,
            "digest": o.digest,
            "metadata": dict(o.metadata),
            "value": o.value,
            "parents": [[p.reference, p.role.value] for p in o.parents],
        }
        for o in outcome.outputs
    ]
    _write(folder, {"outputs": outputs, "result": outcome.result})


def write_failure(folder: Path, cause: Cause, error: RunError) -> None:
    """Say why it failed."""
    _write(folder, {"cause": cause.value, "error": asdict(error)})


def _write(folder: Path, said: dict[str, Any]) -> None:
    aside = folder / f"{_FILE}.part"
    aside.write_text(json.dumps(said))
    aside.replace(folder / _FILE)  # the worker finds all of it or nothing


def read_outcome(folder: Path) -> Outcome | tuple[Cause, RunError] | None:
    """What the task's process said; None when it ended without a word."""
    try:
        said = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return None
    if "error" in said:
        return Cause(said["cause"]), RunError(**said["error"])
    outputs = tuple(
        NewOutput(
            o["name"],
            o["kind"],
            o["digest"],
            tuple(Parent(reference, Role(role)) for reference, role in o["parents"]),
            o["metadata"],
            o["value"],
        )
        for o in said["outputs"]
    )
    return Outcome(outputs, said["result"])


def write_loaded(folder: Path) -> None:
    """Say which heavy packages the task has loaded."""
    (folder / _LOADED).write_text(" ".join(sorted(HEAVY.keys() & sys.modules.keys())))


def read_loaded(folder: Path) -> list[str]:
    """The heavy packages that the task had loaded at its end; none when it did not come so far."""
    try:
        return (folder / _LOADED).read_text().split()
    except FileNotFoundError:
        return []


def masked(
    said: Outcome | tuple[Cause, RunError] | None, mask: Mask
) -> Outcome | tuple[Cause, RunError] | None:
    """The same without the secrets that the task was given."""
    if isinstance(said, Outcome):
        return replace(said, result=mask.value(said.result))
    if said is None:
        return None
    cause, error = said
    return cause, RunError(**mask.value(asdict(error)))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # a user's class may not even be able to say what happened
        return f"(its text cannot be had: {type(failure).__name__})"


def describe(error: BaseException) -> tuple[Cause, RunError]:
    """An exception as the journal keeps it, without secrets and without podium's own frames."""
    kind = recognise(error)
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list([f for f in told.stack if f.filename not in _OURS])
    return kind.cause, RunError(
        type=kind.type,
        message=scrub(_text(error)[: 2 * _MOST_MESSAGE])[:_MOST_MESSAGE],
        traceback=scrub("".join(told.format())[-2 * _MOST_TRACEBACK :])[-_MOST_TRACEBACK:],
        remedy=error.remedy if isinstance(error, PodiumError) else "",
        details=scrub_values(json.loads(json.dumps(kind.details, default=str))),
    )
