"""From the event loop into the registry: its calls block, so they run in threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: Run a blocking call and give its result; a simulation may run it where it stands.
Calls = Callable[[Callable[[], T]], Awaitable[T]]


class Threads:
    """A few threads for one purpose, so that one purpose cannot starve another."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=f"podium-{name}")

    async def __call__(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Begin nothing more. What runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def run_here(call: Callable[[], T]) -> T:
    """Block the loop: for simulations, which must decide alone what happens when."""
    return call()
