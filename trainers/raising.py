"""The error of a step, raised in its driver."""

from __future__ import annotations

from registry.runs import Cause, Run, RunState
from trainers import errors


def failure(run: Run) -> Exception:
    """What a driver's code catches when ``run`` came to nothing."""
    raised = getattr(errors, "of_run", None)
    if raised is not None:
        return raised(run)  # type: ignore[no-any-return]
    if run.state is RunState.CANCELLED:
        return errors.RunFailed(f"Step {run.id} was cancelled.")
    if run.error is None:
        return errors.RunFailed(f"Step {run.id} is {run.state}: {run.cause or Cause.LOST}.")
    return errors.RunFailed(f"{run.error.type}: {run.error.message}", remedy=run.error.remedy)
