"""Refusing at once what no worker could ever do."""

from __future__ import annotations

import time
from collections.abc import Sequence

from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import PRIVATE, Run, RunRequest, Worker
from trainers.errors import NoWorker
from trainers.private import living_workers

#: Seconds for which it is believed that the workers are those that were seen.
_BELIEVED = 2.0


def check_possible(request: RunRequest | Run, workers: Sequence[Worker]) -> None:
    """Raise `NoWorker`, with the names of what is lacking, when none of ``workers`` could ever do it.

    Where there is no worker at all nothing is said: one may be on its way.
    """
    lacking = [worker.capacity.lacking(request.resources) for worker in workers]
    if not lacking or not all(lacking):
        return
    fewest = min(lacking, key=len)
    wanted = request.resources.to_json()
    asked = ", ".join(f"{name} {wanted[name]}" for name in fewest)
    raise NoWorker(
        f"No worker of the pool '{request.pool}' has what '{request.task}' asks for: {asked}.",
        remedy="Start a worker that has it, or ask for less.",
        lacking=fewest,
        pool=request.pool,
        resources=wanted,
    )


def check_left_to_workers(registry: Registry, request: RunRequest | Run) -> None:
    """`check_possible` for what nobody waits for, so that it does not lie in the queue for ever.

    Raises:
        NoWorker: workers of its pool live, and none of them could ever do it.
    """
    check_possible(request, living_workers(registry, request.pool))


class Placing:
    """The workers of the pools that a pipeline's steps go to."""

    def __init__(self, registry: Registry, pool: str) -> None:
        self._registry = registry
        self._private = pool.startswith(PRIVATE)
        self._seen: dict[str, tuple[float, Sequence[Worker]]] = {}
        self._possible: set[tuple[str, Resources]] = set()

    def check(self, request: RunRequest) -> None:
        """`check_possible` with the workers that live. A private worker does its tree as well as it can."""
        demand = (request.pool, request.resources)
        if self._private or demand in self._possible:
            return
        check_possible(request, self._living(request.pool))
        self._possible.add(demand)

    def _living(self, pool: str) -> Sequence[Worker]:
        at, workers = self._seen.get(pool, (0.0, ()))
        if time.monotonic() - at > _BELIEVED:
            at, workers = time.monotonic(), living_workers(self._registry, pool)
            self._seen[pool] = at, workers
        return workers
