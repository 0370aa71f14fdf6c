"""The error of a step, raised in its driver."""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import Any

from registry.errors import InvalidInput
from registry.runs import Cause, Run, RunError, RunState
from trainers import errors
from trainers.errors import (
    InvalidRun,
    RemoteError,
    RunFailed,
    TaskCancelledError,
    TaskError,
    TaskInterruptedError,
)


def failure(run: Run) -> TaskError:
    """What a driver's code catches when ``run`` came to nothing.

    One of podium's types where the journal names one; else a `RemoteError` that is also of the original
    type, so that ``except ValueError`` catches what raised a ``ValueError`` in the step.
    """
    said = run.error or RunError("", f"Its last attempt ended: {run.cause or Cause.LOST}.")
    cls = _class_of(run, said)
    raised = cls(said.message, remedy=said.remedy)
    raised.details = {**said.details, "run": run.id, "state": run.state.value}
    raised.remote_traceback = said.traceback
    raised.add_note(f"In run {run.id}, {run.task}" + (f":\n{said.traceback}" if said.traceback else ""))
    return raised


def as_whole(run: Run) -> type[RunFailed]:
    """What a run that came to nothing is to the person who waited for it."""
    said = _find(str(run.error.details.get("class", ""))) if run.error else None
    refused = run.code is None and said is not None and issubclass(said, InvalidInput)
    return InvalidRun if refused else RunFailed


def _class_of(run: Run, said: RunError) -> type[TaskError]:
    if run.state is RunState.CANCELLED:
        return TaskCancelledError
    if run.state is RunState.INTERRUPTED:
        return TaskInterruptedError
    ours = getattr(errors, said.type, None)
    if isinstance(ours, type) and issubclass(ours, TaskError):
        return ours
    return _also(_find(str(said.details.get("class", ""))), said.type)


def _find(name: str) -> type[Exception] | None:
    """The exception class ``module:name``, where it can be had."""
    module, _, qualified = name.partition(":")
    try:
        found: Any = builtins if module == "builtins" else import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except Exception:  # a user's module may raise anything when it is imported
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _also(original: type[Exception] | None, name: str) -> type[RemoteError]:
    """`RemoteError` under the name of the original type, and of that type where Python allows it."""
    members = {"__module__": __name__, "__init__": _begin, "__str__": _message}
    if original is not None:
        try:
            both = type(name, (RemoteError, original), members)
            both("")  # some classes ask for more when they are made
        except Exception:
            pass
        else:
            return both
    return type(name or "RemoteError", (RemoteError,), members)


def _begin(error: TaskError, message: str, *, remedy: str = "") -> None:
    """Without the original's own way to begin, which may ask for what nobody has any more."""
    BaseException.__init__(error, message)
    error.message, error.remedy, error.details = message, remedy, {}


def _message(error: TaskError) -> str:
    return error.message
