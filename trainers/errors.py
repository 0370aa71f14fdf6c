"""Errors of runs, under the branches of `registry.errors`.

Refused          RunFailed, PipelineDiverged
InvalidInput     TaskNotFound, InvalidResult
Unavailable      NoWorker
"""

from __future__ import annotations

from typing import Any

from registry.errors import InvalidInput, Refused, Unavailable


class RunFailed(Refused):
    """A run that was waited for did not succeed."""

    def to_dict(self) -> dict[str, Any]:
        """With what is printed of a run that succeeds, where programs look for it."""
        said = {name: self.details[name] for name in ("run", "state", "result") if name in self.details}
        return super().to_dict() | said


class PipelineDiverged(Refused):
    """A step that was asked for before is given other inputs now, so its result may not be reused."""


class TaskNotFound(InvalidInput):
    """There is no such recipe, file, or task in the file."""


class InvalidResult(InvalidInput):
    """A task returned something other than what it says it returns."""


class NoWorker(Unavailable):
    """No worker that lives could take the run, and none was started for it."""
