"""Named places at which a process may die, so that tests can make it die exactly there.

Every protocol that must survive a kill (upload, promotion, relay, delivery, lease, rollout) names the points
between its durable effects. In production a point costs one function call. A test in the same process
installs a handler; a test of real processes sets ``PODIUM_CRASH_AT=relay.published`` (for the third time,
``relay.published:3``) and the process is killed there with SIGKILL, as a power cut would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_kill_at = ""
_remaining = 0
_handler: Callable[[str], None] | None = None


def kill_at(where: str) -> None:
    """Die at ``where``, a point or ``POINT:COUNT``; empty for nowhere."""
    global _kill_at, _remaining
    _kill_at, _, count = where.partition(":")
    _remaining = int(count or 1)


kill_at(os.environ.get("PODIUM_CRASH_AT", ""))


def reached(point: str) -> None:
    """Say that execution has come to ``point``."""
    if _handler is not None:
        _handler(point)
    elif _kill_at:
        _kill_if_due(point)


def _kill_if_due(point: str) -> None:
    global _remaining
    if point == _kill_at:
        _remaining -= 1
        if _remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def observed_by(handler: Callable[[str], None]) -> Iterator[None]:
    """Call ``handler`` with each point reached inside the block; it may raise to end the work there."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before
