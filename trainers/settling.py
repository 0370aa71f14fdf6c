"""What a worker writes about an attempt whose processes have ended. A decision, without effects."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from registry.runs import Cause, RunError
from trainers.binding import Outcome
from trainers.errors import OOMError, TaskError, TaskTimeoutError
from trainers.execution import Ended, Ending


@dataclass(frozen=True, slots=True)
class Finish:
    """It succeeded."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class End:
    """It came to nothing."""

    cause: Cause
    error: RunError | None = None


def settle(
    ended: Ended, said: Outcome | tuple[Cause, RunError] | None, *, stopped_for: Cause = Cause.PREEMPTED
) -> Finish | End:
    """Decide from how the processes ended and what the task's own process said before.

    ``stopped_for`` is the cause when the worker had asked it to stop. What succeeded nevertheless, succeeded.
    """
    if isinstance(said, Outcome) and ended.status == 0:
        return Finish(said)
    if ended.ending in _BEYOND:
        return _beyond(ended)
    if ended.ending is Ending.STOPPED:
        return End(stopped_for)
    if ended.ending is Ending.UNCONFIRMED:
        return End(Cause.UNCONFIRMED)
    if ended.ending is Ending.ABANDONED:
        return End(Cause.LOST)
    if said is not None and not isinstance(said, Outcome):
        return End(*said)
    if ended.status == -signal.SIGTERM:  # asked by somebody else than its worker, as when a machine goes down
        return End(stopped_for)
    killed = ended.status == -signal.SIGKILL  # by the kernel or by a person: nothing that the task did itself
    return End(Cause.KILLED if killed else Cause.CRASHED, _crash(ended.status))


_BEYOND = {Ending.TIMED_OUT, Ending.OUT_OF_MEMORY}


def _beyond(ended: Ended) -> End:
    """It was ended because it took more than it may."""
    limit, used = ended.numbers["limit"], ended.numbers["used"]
    if ended.ending is Ending.TIMED_OUT:
        message = f"It was ended after {used:.1f} s; it may run {limit:.1f} s."
        remedy = "Give the task more time, or less to do."
        return End(Cause.TIMED_OUT, _error(TaskTimeoutError, message, remedy, limit=limit, used=used))
    kills = int(ended.numbers.get("kernel_kills", 0))
    message = f"Its processes took {_mebibytes(used)} of memory, and may take {_mebibytes(limit)}."
    if kills:  # they never get more than they may
        message = (
            f"Its processes wanted more memory than the {_mebibytes(limit)} that they may take, "
            "and were ended by the kernel."
        )
    remedy = "Give it more memory (resources), or less to do at a time."
    numbers = {"where": "host", "limit": int(limit), "used": int(used), "kernel_kills": kills}
    return End(Cause.OUT_OF_MEMORY, _error(OOMError, message, remedy, **numbers))


def _error(cls: type[TaskError], message: str, remedy: str, **details: Any) -> RunError:
    return RunError(cls.__name__, message, remedy=remedy, details=details)


def _mebibytes(amount: float) -> str:
    return f"{amount / 2**20:,.0f} MiB"


def _crash(status: int) -> RunError:
    how = f"exited with status {status}" if status >= 0 else f"was ended by {_signal(-status)}"
    hint = "It may have run out of memory." if status == -signal.SIGKILL else "See its log."
    return RunError("Crashed", f"The task's process {how} without a result.", remedy=hint)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
