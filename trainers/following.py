"""Following a run to its end: its state, and what it prints."""

from __future__ import annotations

import time
from collections.abc import Callable

from registry.errors import DatabaseUnavailable
from registry.protocol import Registry
from registry.runs import ENDED, Run

_LOOK_SECONDS = 0.5  # how long to wait for an event that may have been missed
_PATIENCE = 60.0  # seconds for which the database may be away while a run is followed


class _Follower:
    """What has been seen of a run so far."""

    def __init__(
        self,
        registry: Registry,
        run_id: str,
        changed: Callable[[Run], None],
        printed: Callable[[bytes], None],
    ) -> None:
        self._registry = registry
        self._run = run_id
        self._changed = changed
        self._printed = printed
        self._seen: tuple[object, ...] = ()
        self._after = 0  # the last part of the log that was printed

    def look(self) -> Run:
        """Tell what is new."""
        run = self._registry.runs.get(self._run)
        while parts := self._registry.runs.log(run.id, after=self._after):
            for part in parts:
                self._printed(part.data)
                self._after = part.sequence
        if (run.state, run.attempts) != self._seen:
            self._seen = (run.state, run.attempts)
            self._changed(run)
        return run


def follow(
    registry: Registry,
    run_id: str,
    *,
    changed: Callable[[Run], None],
    printed: Callable[[bytes], None],
    check: Callable[[], None] = lambda: None,
    once: bool = False,
) -> Run:
    """Call ``changed`` at each new state or attempt and ``printed`` with output, until the run has ended.

    ``check`` is called at every look and may raise. With ``once`` it tells what there is now, and returns.
    The database may be away for a minute: the run goes on without it.
    """
    follower = _Follower(registry, run_id, changed, printed)
    answered = time.monotonic()
    while True:
        try:
            newest = registry.events.position().newest
            run = follower.look()
            if run.state in ENDED or once:
                return run
            registry.events.wait(newest, _LOOK_SECONDS)
            answered = time.monotonic()
        except DatabaseUnavailable:
            if once or time.monotonic() - answered > _PATIENCE:
                raise
            time.sleep(_LOOK_SECONDS)
        check()
