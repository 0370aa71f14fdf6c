"""Errors of runs, under the branches of `registry.errors`.

Refused          RunFailed
InvalidInput     TaskNotFound, InvalidResult
Unavailable      NoWorker
"""

from __future__ import annotations

from registry.errors import InvalidInput, Refused, Unavailable


class RunFailed(Refused):
    """A run that was waited for did not succeed."""


class TaskNotFound(InvalidInput):
    """There is no such recipe, file, or task in the file."""


class InvalidResult(InvalidInput):
    """A task returned something other than what it says it returns."""


class NoWorker(Unavailable):
    """No worker that lives could take the run, and none was started for it."""
