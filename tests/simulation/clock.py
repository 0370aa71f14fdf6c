"""An event loop whose time is virtual: it never waits, it jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from tests.simulation.process import current
from tests.simulation.threads import Pool


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


def monotonic() -> float:
    """`time.monotonic` for code that runs in a world."""
    process = current.get()
    assert process is not None, "only processes of a world have this clock"
    return process.world.now


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop of simulated seconds, beginning at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: object, call: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        """Instead of in a thread, the call runs here, in pieces: see `Process.interleaved`."""
        if isinstance(executor, Pool):
            return executor.submit(call, *arguments)
        process = current.get()
        assert process is not None, "only processes of a world have threads"
        return self.create_task(process.interleaved(lambda: call(*arguments)))
