"""An event loop whose time is virtual: it never waits, it jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Stuck(AssertionError):
    """Every actor waits for another one, and no timer will ever wake one."""


class _JumpingSelector(selectors.SelectSelector):
    """Waiting moves the loop's time forward instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("all actors wait for each other")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop of simulated seconds, beginning at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._jumping.now

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        raise AssertionError("a simulation has one thread")
