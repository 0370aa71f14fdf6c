"""Following a run to its end: its state, and what it prints."""

from __future__ import annotations

import time
from collections.abc import Callable

from registry.protocol import Registry
from registry.runs import ENDED, Run

_LOOK_SECONDS = 0.5  # how long to wait for an event that may have been missed


def follow(
    registry: Registry,
    run_id: str,
    *,
    changed: Callable[[Run], None],
    printed: Callable[[bytes], None],
    check: Callable[[], None] = lambda: None,
    timeout: float | None = None,
) -> Run:
    """Call ``changed`` at each new state or attempt and ``printed`` with output, until the run has ended.

    ``check`` is called at every look and may raise. Returns the run as it is after ``timeout`` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    seen: tuple[object, ...] = ()
    after = 0
    while True:
        newest = registry.events.position().newest
        run = registry.runs.get(run_id)
        after = _print_new(registry, run.id, after, printed)
        if (run.state, run.attempts) != seen:
            seen = (run.state, run.attempts)
            changed(run)
        if run.state in ENDED or (deadline is not None and time.monotonic() > deadline):
            return run
        check()
        registry.events.wait(newest, _LOOK_SECONDS)


def _print_new(registry: Registry, run_id: str, after: int, printed: Callable[[bytes], None]) -> int:
    while parts := registry.runs.log(run_id, after=after):
        for part in parts:
            printed(part.data)
            after = part.sequence
    return after
