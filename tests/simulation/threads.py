"""Threads of a process of the world: each is a blocking call that others come between.

What code under simulation takes from `threading` and `concurrent.futures` it gets from here, so that it runs
unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.simulation.process import Process, current


def _process() -> Process:
    process = current.get()
    assert process is not None, "only processes of a world have threads"
    return process


def sleep(seconds: float) -> None:
    """`time.sleep` in virtual time."""
    _process().sleep(seconds)


class Event:
    """`threading.Event`, as far as one waits at it to be told to stop."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        if not self._is_set:
            sleep(timeout)
        return self._is_set


class Thread:
    """`threading.Thread`: begun, and left to itself."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._process, self._target = _process(), target

    def start(self) -> None:
        self._process.world.loop.create_task(self._process.interleaved(self._target))

    def join(self, timeout: float) -> None:
        """It is not waited for: the process ends, and it with it."""


class Pool:
    """`ThreadPoolExecutor` of one thread: calls one after the other, each in pieces."""

    def __init__(self, workers: int, name: str) -> None:
        assert workers == 1, "more would not be one after the other"
        self._process = _process()
        self._turn = asyncio.Lock()

    def submit(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Task[Any]:
        return self._process.world.loop.create_task(self._run(call, *arguments))

    async def _run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        async with self._turn:
            return await self._process.interleaved(lambda: call(*arguments))

    def shutdown(self) -> None:
        """What runs ends with its process."""
