"""Ending asyncio tasks, and waiting for events, without losing a cancellation.

``asyncio.wait_for`` of Python 3.11 swallows a cancellation that comes together with the result it waits for,
and the NATS client is built on it. So nothing here waits through it, and a task is cancelled until it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_AGAIN_SECONDS = 3.0


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait until ``event`` is set, but not longer than ``seconds``; whether it is."""
    if seconds > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()


async def end(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    """Cancel tasks and wait until they have ended; the result or exception of each."""
    all_tasks = list(tasks)
    left = {task for task in all_tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)
    return await asyncio.gather(*all_tasks, return_exceptions=True)


async def first_of(*tasks: asyncio.Future[Any]) -> None:
    """Wait until one of them has ended, then end the others; raises what one of them raised."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        results = await end(tasks)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
