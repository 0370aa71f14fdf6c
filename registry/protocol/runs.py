"""The run journal: runs, their steps and checkpoints, and the workers that carry them out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from registry.checkpoints import TRAINING, SavedCheckpoint
from registry.resources import Resources
from registry.runs import (
    Attempt,
    Cause,
    Claim,
    LogPart,
    NewOutput,
    Run,
    RunError,
    RunRequest,
    RunState,
    Worker,
)
from registry.values import Role


class Runs(Protocol):
    """The run journal."""

    def queue(self, request: RunRequest) -> Run:
        """Ask for a run. Its inputs are resolved now. Asked for again with its ``key`` it is the same run."""

    def get(self, run: str) -> Run:
        """A run by its id, or by the beginning of it that no other has. Raises `RunNotFound`."""

    def list(
        self,
        *,
        state: RunState | None = None,
        task: str | None = None,
        parent: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Newest first. With ``before`` only those that were queued before that run."""

    def attempts(self, run: str) -> Sequence[Attempt]:
        """Every execution of a run so far, the first one first."""

    def claim(
        self,
        worker: str,
        *,
        free: Resources,
        total: Resources,
        pool: str = "default",
        only: str | None = None,
        limit: int = 16,
        lenient: bool = False,
    ) -> Sequence[Claim]:
        """Take the queued runs that fit into ``free``, in queue order.

        ``only`` is the id of the one run that is taken, with its steps. With ``lenient`` a run that asks for
        more than ``total`` counts as if it asked for that.
        """

    def set_roles(self, run: str, roles: Mapping[str, Role]) -> None:
        """Say what a run's inputs are to its outputs, where who asked for it by the task's name could not."""

    def note(self, run: str, attempt: int, environment: Mapping[str, Any]) -> None:
        """Record with which versions and hardware an attempt runs."""

    def finish(self, run: str, outputs: Sequence[NewOutput], *, result: Any = None) -> Run:
        """Make stored contents the run's outputs and end it: lineage, publication, event and lease in one.

        Called by a registry acting with the run's authority. Raises `StaleAuthority`.
        """

    def end(self, run: str, cause: Cause, error: RunError | None = None) -> Run:
        """End the attempt that runs, without success. The run is queued again where that is its rule."""

    def expire(self) -> Sequence[Run]:
        """Fail the queued runs that have waited longer than they may; those that this call has failed."""

    def cancel(self, run: str) -> Run:
        """End a run and its steps for good. What runs loses its lease first: nothing of it comes after."""

    def recover(self, run: str, *, code: str | None = None, take_over: bool = False) -> Run:
        """Queue a run again that failed or was interrupted: its next attempt reuses the steps that are done.

        ``code`` is the digest of another bundle to go on with. With ``take_over`` one that lives loses its
        lease and begins again. Raises `RunRefused`.
        """

    def append_log(self, run: str, attempt: int, data: bytes) -> None:
        """Add to what the run printed."""

    def log(self, run: str, *, after: int = 0, limit: int = 100, newest: bool = False) -> Sequence[LogPart]:
        """What a run's attempts printed, after the part numbered ``after``.

        Of more than ``limit`` parts the first ones, or with ``newest`` the last ones; in order either way.
        """


class Steps(Protocol):
    """Steps of pipelines: runs at a place in another run. All but `of` is for their driver and its worker."""

    def of(self, run: str) -> Sequence[Run]:
        """What a run has asked for, in the order in which it did."""

    def ask(self, request: RunRequest) -> Run:
        """The step at ``request.place`` of ``request.parent``: the one that is there, or else a new one.

        A new one with a ``cache_key`` is reused from a run that made the same, or waits for one that does.
        """

    def settle(self, run: str, *, impatient: bool = False) -> Run:
        """A step that waits for another's cached work: reuse that, or do it, when the other has ended.

        ``impatient``: do it although the other is not done, because nobody seems to carry that one out.
        """

    def again(self, run: str, request: RunRequest) -> Run:
        """Queue a step once more that came to nothing in an earlier execution of its parent."""

    def ended(self, runs: Collection[str]) -> Sequence[Run]:
        """Those of the runs that have ended."""

    def awaiting(self, runs: Collection[str]) -> set[str]:
        """Those of the runs that have steps which live: they wait, and need no capacity meanwhile."""

    def record(
        self, request: RunRequest, began: datetime, *, result: Any = None, error: RunError | None = None
    ) -> Any:
        """Write down a step that its driver has done itself; the result, or that which was there before."""

    def fork(self, request: RunRequest, kept: Sequence[str]) -> Run:
        """Queue a run that has the steps ``kept`` (run ids) of another already."""


class Checkpoints(Protocol):
    """States of trainings that a run's attempts leave to each other."""

    def save(
        self,
        run: str,
        step: int,
        path: Path,
        *,
        series: str = TRAINING,
        keep: int = 2,
        metadata: Mapping[str, Any] | None = None,
    ) -> SavedCheckpoint:
        """Store a folder or file as the state of ``run`` at ``step``; it is the newest one from then on.

        Nothing of it is seen before all of it is stored. The ``keep`` newest of its series stay. Called by a
        registry acting with the run's authority.

        Raises:
            StaleAuthority: another attempt, or nobody, carries the run out now. Nothing was recorded.
            RunRefused: called on behalf of anybody else.
        """

    def of(self, run: str, series: str | None = None) -> Sequence[SavedCheckpoint]:
        """What is kept of a run's checkpoints, series by series, the newest first."""

    def mark_damaged(self, checkpoint: SavedCheckpoint, reason: str) -> None:
        """Record that a checkpoint cannot be read, so that it does not count among those that are kept.

        Chunks with wrong bytes are taken out of the store; the next checkpoint that has them sends them
        again.
        """


class Workers(Protocol):
    """Processes that take runs. What stands here is for finding them; authority is in the runs' leases."""

    def register(self, worker: Worker) -> None: ...

    def seen(self, worker: str) -> None:
        """Say that it lives."""

    def leave(self, worker: str) -> None: ...

    def all(self, *, pool: str | None = None) -> Sequence[Worker]:
        """Newest first, those that have gone without a word for an hour left out."""
