r"""Runs as values: their states, what ends an attempt, and what follows from that.

queued --> running --> succeeded
  ^  \        |------> failed         an error, and no retry is left
  |   \       |------> cancelled
  |    `----> cancelled, failed       or it waited longer than it may
  `-----------'                       interrupted or failed, and tried again
              `------> interrupted    nothing will take it up again by itself; `recover` does
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from registry.conditions import Conditions
from registry.resources import Resources
from registry.text import storable
from registry.values import Lease, Origin, Parent, Role

#: An attempt that is lost again and again is not the worker's bad luck: the run itself kills what it runs on.
MOST_INTERRUPTIONS = 20
#: Kills at one place (nothing was saved or finished between them) that are the machine's bad luck. After that
#: it is the run's own doing: it wants more memory than there is, or kills itself.
MOST_KILLS = 3
#: Seconds before the first retry; each later one waits twice as long, up to the longest.
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 300.0


#: Name of the output of a task that returns one artifact; it is what is published.
RESULT = "result"

#: Beginning of the pools of private workers.
PRIVATE = "private/"

#: Runs above a run, at most. Each is a process that waits, and a task that calls itself would go on for ever.
MOST_DEPTH = 32

#: The pool of steps that their driver does itself; no worker takes from it.
INLINE = "inline"


class RunState(StrEnum):
    QUEUED = "queued"  # waits for a worker that it fits
    RUNNING = "running"  # a worker holds its lease
    SUCCEEDED = "succeeded"  # its outputs are visible
    FAILED = "failed"  # its last attempt failed and no retry was left
    INTERRUPTED = "interrupted"  # it was stopped without an outcome, and waits for a person
    CANCELLED = "cancelled"  # a person ended it


TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.RUNNING: frozenset(
        {
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.INTERRUPTED,
            RunState.CANCELLED,
            RunState.QUEUED,  # this attempt came to nothing, another follows
        }
    ),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset({RunState.QUEUED}),  # recovered
    RunState.INTERRUPTED: frozenset({RunState.QUEUED, RunState.CANCELLED}),  # recovered, or given up
    RunState.CANCELLED: frozenset(),
}

ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED, RunState.CANCELLED})


class Cause(StrEnum):
    """Why an attempt ended without success."""

    ERROR = "error"  # the task raised
    CRASHED = "crashed"  # its process died without a word
    KILLED = "killed"  # its process was killed, and not by its worker
    INVALID = "invalid"  # what it was given cannot be used: another attempt would find the same
    OUT_OF_MEMORY = "out_of_memory"  # of the host or of an accelerator
    TIMED_OUT = "timed_out"  # it took longer than it may
    NON_RECOVERABLE = "non_recoverable"  # the task says that another attempt would be in vain
    LOST = "lost"  # its worker was not heard of for a lease's term
    PREEMPTED = "preempted"  # its worker was asked to stop and handed it back
    UNCONFIRMED = "unconfirmed"  # it stopped itself because its lease could not be confirmed
    STOPPED = "stopped"  # the person who ran it privately went away
    CANCELLED = "cancelled"  # a person ended it
    TAKEN_OVER = "taken_over"  # a person had it begun anew while it seemed to live


#: Causes that say something about the run itself. The others are its worker's, and spend no retry.
SPENDS_RETRY = frozenset(
    {
        Cause.ERROR,
        Cause.CRASHED,
        Cause.INVALID,
        Cause.OUT_OF_MEMORY,
        Cause.TIMED_OUT,
        Cause.NON_RECOVERABLE,
    }
)
#: Those after which another attempt would find the same, however many retries are left.
FINAL = frozenset({Cause.INVALID, Cause.NON_RECOVERABLE})


@dataclass(frozen=True, slots=True)
class RunError:
    """What an attempt said when it failed."""

    type: str  # class of the exception, such as "ValueError"
    message: str
    traceback: str = ""
    remedy: str = ""
    details: Mapping[str, Any] = field(
        default_factory=dict
    )  # plain JSON: numbers, and "class", its full name

    def __post_init__(self) -> None:
        for name in ("type", "message", "traceback", "remedy"):
            object.__setattr__(self, name, storable(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is asked for. ``arguments`` are plain JSON; ``inputs`` are resolved when it is queued."""

    task: str  # "sft", or "train.py:train" with the bundle that has it
    arguments: Mapping[str, Any] = field(default_factory=dict)  # parameter -> value
    inputs: Mapping[str, str] = field(default_factory=dict)  # parameter -> reference, or id of a value
    roles: Mapping[str, Role] = field(default_factory=dict)  # parameter -> what it is to the outputs
    code: str | None = None  # digest of its bundle, stored before; None for a task that is installed
    resources: Resources = field(default_factory=Resources)
    pool: str = "default"
    publish: str | None = None  # artifact of which the result becomes a version
    retries: int = 0
    app: str | None = None
    parent: str | None = None  # the run that asked for it
    place: str | None = None  # which of its parent's steps it is; asked for twice, it is one run
    signature: str | None = None  # digest of the task and what it is given
    cache_key: str | None = None  # digest of all that decides what it makes; None: it is not cached
    kept: tuple[str, ...] = ()  # for a step that is done anew from a step of its own on: those before that
    key: str | None = None  # asked for twice with the same key, it is one run
    captured: Mapping[str, Any] = field(default_factory=dict)  # commit, diff, lock ...
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class RunInput:
    """An input, resolved to content."""

    parameter: str
    value: str
    kind: str
    digest: str
    role: Role
    ref: str | None = None  # None for a value that no version names


@dataclass(frozen=True, slots=True)
class RunOutput:
    name: str  # "result" when the task returns one thing
    value: str
    kind: str
    digest: str
    ref: str | None = None  # the version it was published as


@dataclass(frozen=True, slots=True)
class NewOutput:
    """Content that a run has stored and that becomes its output when it finishes."""

    name: str
    kind: str
    digest: str
    parents: tuple[Parent, ...] = ()  # besides the run's own inputs and code
    metadata: Mapping[str, Any] = field(default_factory=dict)
    value: str | None = None  # a value that is there already and is handed on; None makes a new one


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a run."""

    number: int  # from 1
    worker: str
    epoch: int  # of the lease under which it writes
    started_at: datetime
    ended_at: datetime | None = None
    outcome: RunState | None = None  # succeeded, failed, interrupted, cancelled; None while it runs
    cause: Cause | None = None
    error: RunError | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)  # versions and hardware it ran with


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded execution of a task."""

    id: str
    task: str
    state: RunState
    arguments: Mapping[str, Any]
    inputs: tuple[RunInput, ...]
    outputs: tuple[RunOutput, ...]
    code: str | None  # digest of its bundle
    resources: Resources
    pool: str
    publish: str | None
    retries: int
    attempts: int  # how many have begun
    actor: str
    queued_at: datetime
    not_before: datetime | None = None  # when a retry may be taken
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None  # what the task returned, where that is plain JSON
    error: RunError | None = None  # of the last failed attempt
    app: str | None = None
    parent: str | None = None
    root: str = ""  # the run at the top of its tree; its own id where it has no parent
    depth: int = 0  # how many runs are above it
    place: str | None = None  # which of its parent's steps it is
    signature: str | None = None  # digest of the task and what it was given
    source: str | None = None  # the run that really did it, where it was reused from another
    cache_key: str | None = None
    waits_for: str | None = None  # the run that does the same cached work now
    again: bool = False  # it failed in an earlier execution of its parent, and is done again when asked for
    asked: int = 0  # how many events there were when it was asked for: an order that needs no clock
    done: int | None = None  # ... and when it ended
    cause: Cause | None = None  # why its last attempt ended without success
    key: str | None = None
    causation: str | None = None
    correlation: str | None = None
    captured: Mapping[str, Any] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def lease(self) -> str:
        """The name of the lease that gives authority over it."""
        return lease_name(self.id)

    @property
    def inline(self) -> bool:
        """Whether its driver does it itself."""
        return self.pool == INLINE


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that a worker has taken, with the right to write for it."""

    run: Run
    attempt: int
    lease: Lease

    @property
    def origin(self) -> Origin:
        """On whose behalf the attempt writes."""
        run = self.run
        return Origin(f"run:{run.id}", self.lease.authority, run.causation, run.correlation)


@dataclass(frozen=True, slots=True)
class LogPart:
    """A piece of what an attempt printed, as it came: bytes, not always text."""

    run: str
    attempt: int
    sequence: int  # order within the run
    data: bytes


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that takes runs."""

    id: str
    pool: str
    capacity: Resources
    host: str
    process: str  # who it is on its host: boot, process namespace, pid and start time
    started_at: datetime
    seen_at: datetime  # its last beat, by the clock of the worker


@dataclass(frozen=True, slots=True)
class Next:
    """What becomes of a run whose attempt has ended without success."""

    state: RunState
    delay: float = 0.0  # seconds before another attempt


def private_pool() -> str:
    """A pool that no other worker takes from."""
    return f"{PRIVATE}{uuid.uuid4().hex}"


def pool_after(pool: str, cause: Cause | None) -> str:
    """The pool of a run that is queued again: when a private worker is gone, others may take its run."""
    gone = cause not in SPENDS_RETRY | {Cause.KILLED}
    return "default" if gone and pool.startswith(PRIVATE) else pool


def lease_name(run: str) -> str:
    return f"run/{run}"


def after_attempt(
    retries: int,
    earlier: Sequence[Cause],
    cause: Cause,
    backoff: float | None = None,
    *,
    kills: int | None = None,
) -> Next:
    """Decide what follows from an attempt that ended by ``cause`` after those that ended ``earlier``.

    ``backoff`` is how many seconds the first retry waits. ``kills`` is how often it was killed before since
    it last came further; without it all kills count.
    """
    if cause is Cause.CANCELLED:
        return Next(RunState.CANCELLED)
    if cause is Cause.STOPPED:
        return Next(RunState.INTERRUPTED)
    kills = earlier.count(Cause.KILLED) if kills is None else kills
    own_doing = cause is Cause.KILLED and kills >= MOST_KILLS
    if cause not in SPENDS_RETRY and not own_doing:
        interruptions = sum(c not in SPENDS_RETRY for c in earlier)
        return Next(RunState.INTERRUPTED if interruptions >= MOST_INTERRUPTIONS else RunState.QUEUED)
    failures = sum(c in SPENDS_RETRY for c in earlier) + max(0, kills - MOST_KILLS)
    first = FIRST_BACKOFF if backoff is None else backoff
    if cause in FINAL or failures >= retries:
        return Next(RunState.FAILED)
    return Next(RunState.QUEUED, delay=min(max(LONGEST_BACKOFF, first), first * 2**failures))
