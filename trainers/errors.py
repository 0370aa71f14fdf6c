"""Errors of runs, under the branches of `registry.errors`.

Refused
|-- RunFailed
|   |-- InvalidRun             exit status 2
|   `-- TaskError              what a step's caller catches
|       |-- OOMError
|       |-- TaskInterruptedError
|       |-- TaskTimeoutError
|       |-- TaskCancelledError
|       |-- ImagePullBackOffError
|       |-- NonRecoverableError
|       `-- RemoteError        and by the type of the task's own exception, where that can be imported
`-- PipelineDiverged
InvalidInput     TaskNotFound, InvalidResult, NotOffered
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


class InvalidRun(RunFailed):
    """A recipe found that it was given what cannot be used, such as the name of nothing that there is."""

    exit_status = InvalidInput.exit_status


class TaskError(RunFailed):
    """A task came to nothing. ``details`` has its run and the numbers; ``remote_traceback`` where it was."""

    remote_traceback: str = ""


class OOMError(TaskError):
    """Memory ran out. ``details['where']`` is ``host`` or ``cuda``; amounts are bytes.

    ``limit`` and ``used`` are the host's, ``requested``, ``free`` and ``total`` an accelerator's.
    """


class TaskInterruptedError(TaskError):
    """It was stopped without an outcome, and nothing takes it up again by itself."""


class TaskTimeoutError(TaskError):
    """It took longer than it may: to run, to wait for a worker, or both."""


class TaskCancelledError(TaskError):
    """A person, or what had asked for it, ended it."""


class ImagePullBackOffError(TaskError):
    """The environment that it needs could not be made."""


class NonRecoverableError(TaskError):
    """Raised by a task that knows that another attempt would be in vain: no retry follows."""


class RemoteError(TaskError):
    """A task raised an exception of its own."""


class PipelineDiverged(Refused):
    """A step that was asked for before is given other inputs now, so its result may not be reused."""


class TaskNotFound(InvalidInput):
    """There is no such recipe, file, or task in the file."""


class InvalidResult(InvalidInput):
    """A task returned something other than what it says it returns."""


class NotOffered(InvalidInput):
    """Something of a task that no executor of podium's can give it."""


class NoWorker(Unavailable):
    """No worker that lives could take the run, and none was started for it."""
