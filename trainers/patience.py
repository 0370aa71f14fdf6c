"""Work that is tried again while the database does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from registry.errors import DatabaseUnavailable

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


async def patiently(act: Callable[[], T], *, give_up: Callable[[], bool]) -> T:
    """The result of ``act``; its `DatabaseUnavailable` only when ``give_up`` says so."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await asyncio.to_thread(act)
        except DatabaseUnavailable:
            if give_up():
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def insist(act: Callable[[], T]) -> T:
    """The result of ``act``, for a task's process: its guard ends it when its lease cannot be confirmed."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return act()
        except DatabaseUnavailable:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
