"""Waiting for steps: a thread that looks when something has happened, and wakes the driver's event loop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from registry.crashpoints import reached
from registry.errors import DatabaseUnavailable, PodiumError, StaleAuthority
from registry.protocol import Registry
from registry.runs import Run, RunState

_LOOK_SECONDS = 0.5  # how long to wait for an event that may have been missed
#: Terms of a lease for which a step waits for cached work that nobody has begun.
_PATIENT_TERMS = 3


class Watch:
    """Tells of steps that have ended. ``tell`` and ``fail`` are called in the watch's thread."""

    def __init__(
        self, registry: Registry, tell: Callable[[Run], None], fail: Callable[[PodiumError], None]
    ) -> None:
        self._registry = registry
        self._tell = tell
        self._fail = fail
        self._lock = threading.Lock()
        self._steps: dict[str, str | None] = {}  # step -> the run that does its cached work
        self._idle_since: dict[str, float] = {}  # such a run -> since when it has been seen to be queued
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, step: Run) -> None:
        with self._lock:
            self._steps[step.id] = step.waits_for
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
            self._thread.start()

    def remove(self, step: str) -> None:
        with self._lock:
            self._steps.pop(step, None)

    def look(self) -> None:
        """Tell of all that have ended."""
        with self._lock:
            steps = dict(self._steps)
        for step, other in steps.items():
            if other is not None:
                self._settle(step, other)
        for run in self._registry.steps.ended(list(steps)):
            self.remove(run.id)
            self._tell(run)

    def _settle(self, step: str, other: str) -> None:
        """Look after a step that waits for another's cached work."""
        there = self._registry.runs.get(other)
        idle = there.state is RunState.QUEUED
        since = self._idle_since.setdefault(other, time.monotonic())
        if not idle:
            self._idle_since[other] = time.monotonic()
        term = self._registry.settings.lease_seconds
        now = self._registry.steps.settle(
            step, impatient=idle and time.monotonic() - since > _PATIENT_TERMS * term
        )
        if now.waits_for != other:
            reached("step.settled")
        with self._lock:
            if step in self._steps:
                self._steps[step] = now.waits_for

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                newest = self._registry.events.position().newest
                self.look()
                self._registry.events.wait(newest, _LOOK_SECONDS)
            except DatabaseUnavailable:
                self._closed.wait(_LOOK_SECONDS)
            except StaleAuthority as error:
                self._fail(error)
                return

    def close(self) -> None:
        """Stop looking; what is looked at in this moment is finished first."""
        self._closed.set()
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):
                self._thread.join(2 * _LOOK_SECONDS)
