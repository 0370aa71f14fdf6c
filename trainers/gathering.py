"""The same task over many configurations, so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from registry.errors import InvalidInput
from registry.steps import MAP
from trainers.places import map_call


async def gather_map(
    task: Callable[..., Awaitable[Any] | Any],
    configs: Iterable[Any],
    *,
    concurrency: int = 32,
    cancel_on_error: bool = False,
) -> list[Any]:
    """Call ``task`` (or any coroutine function) with each of ``configs``; the results, in their order.

    A mapping is given as keywords, a tuple as positions, anything else as the one argument. At most
    ``concurrency`` calls go on at once. In the place of a call that failed stands its exception; with
    ``cancel_on_error`` the first failure is raised instead, and what is left is cancelled.

    Raises:
        InvalidInput: ``concurrency`` is less than 1.
    """
    if concurrency < 1:
        raise InvalidInput(f"A concurrency of {concurrency} gets nothing done.", remedy="Give 1 or more.")
    room = asyncio.Semaphore(concurrency)
    label = f"{MAP}{map_call()}"
    # All branches are begun at once, so that their numbers do not depend on which of them ends first.
    branches = [asyncio.ensure_future(_named(_call(task, config, room), label)) for config in configs]
    if not branches:
        return []
    try:
        await asyncio.wait(
            branches, return_when=asyncio.FIRST_EXCEPTION if cancel_on_error else asyncio.ALL_COMPLETED
        )
    finally:
        await _end(branches)
    if cancel_on_error:
        _raise_first(branches)
    return [_outcome(branch) for branch in branches]


async def _call(task: Callable[..., Any], config: Any, room: asyncio.Semaphore) -> Any:
    async with room:
        if isinstance(config, Mapping):
            returned = task(**config)
        elif isinstance(config, tuple):
            returned = task(*config)
        else:
            returned = task(config)
        return await returned if isinstance(returned, Awaitable) else returned


def _named(coroutine: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
    """Branches are called by their coroutine's name."""
    coroutine.__name__ = name  # type: ignore[attr-defined]  # every coroutine of Python's own has it
    return coroutine


async def _end(branches: list[asyncio.Task[Any]]) -> None:
    """Cancel what goes on, and wait until it has ended."""
    left = [branch for branch in branches if not branch.done()]
    for branch in left:
        branch.cancel()
    if left:
        await asyncio.wait(left)


def _raise_first(branches: list[asyncio.Task[Any]]) -> None:
    for branch in branches:
        if not branch.cancelled() and (error := branch.exception()) is not None:
            raise error


def _outcome(branch: asyncio.Task[Any]) -> Any:
    if branch.cancelled():
        return asyncio.CancelledError()
    error = branch.exception()
    if error is not None and not isinstance(error, Exception):
        raise error  # such as KeyboardInterrupt: not the outcome of one configuration
    return error if error is not None else branch.result()
