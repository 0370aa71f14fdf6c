"""A worker for one run only, in the process of the person who asked for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from registry.processes import is_known_dead
from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import Run, Worker
from trainers.errors import NoWorker
from trainers.machine import capacity, describe
from trainers.worker import run_worker

#: A worker that has not been heard of for so many terms of a lease is not counted on.
_TERMS_OF_SILENCE = 3


def able_workers(registry: Registry, run: Run) -> list[Worker]:
    """Workers that seem to live and could take the run, now or when they have room."""
    living = living_workers(registry, run.pool)
    return [worker for worker in living if not worker.capacity.lacking(run.resources)]


def living_workers(registry: Registry, pool: str) -> list[Worker]:
    """Workers of a pool that seem to live."""
    silent = timedelta(seconds=_TERMS_OF_SILENCE * registry.settings.lease_seconds)
    since = datetime.now(UTC) - silent
    return [
        worker
        for worker in registry.workers.all(pool=pool)
        if worker.seen_at >= since and not is_known_dead(worker.process)
    ]


def private_capacity(run: Run, *, strict: bool) -> tuple[Resources, str]:
    """What a private worker offers for the run, and a warning where this machine has less than that.

    Raises:
        NoWorker: the machine has less, and ``strict`` says that this matters.
    """
    lacking = capacity().lacking(run.resources)
    if not lacking:
        return capacity(), ""
    wants = f"This machine lacks what the run asks for ({', '.join(lacking)}): {describe(run.resources)}."
    if strict:
        raise NoWorker(wants, remedy="Start a worker that has it, or leave --strict out.")
    return run.resources, wants


@contextmanager
def private_worker(
    registry: Registry,
    run: Run,
    offered: Resources,
    report: Callable[[str], None],
    *,
    strict: bool = False,
) -> Iterator[Callable[[], BaseException | None]]:
    """Carry out ``run`` beside the block; at its end the worker stops, and a run that is not done with it.

    Gives a function that says by which error the worker ended, if it did.
    """
    ended: list[BaseException] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def work() -> None:
        ready.set()
        await run_worker(registry, offered, stop, report, pool=run.pool, only=run.id, lenient=not strict)

    def in_thread() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(work())
            except BaseException as error:
                ended.append(error)

    thread = threading.Thread(target=in_thread, name="private worker")
    thread.start()
    ready.wait()
    try:
        yield lambda: ended[0] if ended else None
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
