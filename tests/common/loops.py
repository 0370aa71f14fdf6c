"""Waiting inside an event loop, as `tests.common.waiting` does outside of one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(condition: Callable[[], T | Awaitable[T]], timeout: float = 20, what: str = "") -> T:
    """Call ``condition`` until it (or what it awaits) is true, and return that."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what or condition}"
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
