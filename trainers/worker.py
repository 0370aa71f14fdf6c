"""A worker: takes queued runs that fit, has each carried out, and keeps their leases.

Three loops go on at once: taking runs, beating their leases, and looking for runs that others have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from registry.capture import describe_environment
from registry.crashpoints import reached
from registry.errors import DatabaseUnavailable, PodiumError
from registry.processes import Process, is_known_dead
from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import Cause, Claim, Worker
from registry.values import Lease
from trainers.carrying import Carried, Circumstances, child_environment
from trainers.devices import Devices
from trainers.execution import Executor
from trainers.forked import ForkingExecutor
from trainers.guard import boot_clock
from trainers.machine import describe, gpus
from trainers.memory_groups import memory_groups
from trainers.patience import patiently
from trainers.reaping import Reaper

T = TypeVar("T")

#: Beats in a lease's term. Some may be late or lost before anybody thinks that the worker is dead.
_BEATS_IN_TERM = 5
#: A run ends itself after this share of the term without a confirmation: before another may take it over.
_CONFIRMED_FOR = 0.8
#: File in PODIUM_HOME that says what runs have loaded.
_REMEMBERED = "loaded-by-runs"
#: Seconds between looks at the queue when nothing says that there is something new: a retry may be due.
_POLL = 1.0


async def run_worker(
    registry: Registry,
    capacity: Resources,
    stop: asyncio.Event,
    report: Callable[[str], None],
    *,
    pool: str = "default",
    only: str | None = None,
    lenient: bool = False,
    grace: float = 10.0,
    executor: Executor | None = None,
) -> None:
    """Take runs until ``stop`` is set; then hand back those that run, at once, and return.

    ``only`` is the id of a run that this worker is private to, with its steps. With ``lenient`` it also takes
    what asks for more than its capacity. Tasks have ``grace`` seconds to end by themselves.
    """
    worker = _Worker(registry, capacity, report, pool, only, lenient, grace, executor)
    await worker.run(stop)


class _Worker:
    def __init__(
        self,
        registry: Registry,
        capacity: Resources,
        report: Callable[[str], None],
        pool: str,
        only: str | None,
        lenient: bool,
        grace: float,
        executor: Executor | None,
    ) -> None:
        self.id = f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"
        self._registry = registry.acting(replace(registry.origin, actor=f"worker:{self.id}"))
        self._capacity = capacity
        self._report = report
        self._pool = pool
        self._only = only
        self._lenient = lenient
        self._term = registry.settings.lease_seconds
        self._folder = registry.settings.home / "work" / self.id
        self._reaper = Reaper(self._registry, self.id, self._term, report)
        self._carried: dict[Carried, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._stopped_at: float | None = None
        self._grace = grace
        self._forking = ForkingExecutor(
            memory_groups()
        )  # used, and begun, only where no other executor is given
        self._executor = executor or self._forking
        self._circumstances = Circumstances(
            registry=self._registry,
            executor=self._executor,
            folder=self._folder,
            grace=grace,
            report=report,
            stopped_for=Cause.PREEMPTED if only is None else Cause.STOPPED,
            environment=cache(describe_environment),
            devices=Devices(gpus(capacity)),
            loaded=self._loaded,
            give_up=self._waited_enough,
        )
        # Beats have a thread of their own: nothing that takes long elsewhere may hold them up.
        self._beat_thread = ThreadPoolExecutor(1, "beat")
        # Waiting for events has one, too: the registry keeps a listener for each thread that waits.
        self._wait_thread = ThreadPoolExecutor(1, "wait")

    async def run(self, stop: asyncio.Event) -> None:
        await asyncio.to_thread(self._begin)
        self._report(f"worker {self.id}: ready with {describe(self._capacity)}, pool {self._pool}")
        warming = asyncio.create_task(self._warm())
        taking = asyncio.create_task(self._take())
        loops = [taking, asyncio.create_task(self._beat()), asyncio.create_task(self._reap())]
        stopped = asyncio.create_task(stop.wait())
        try:
            # A loop ends only by an error, and a worker that lacks one of them must not go on.
            await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
            self._stopped_at = time.monotonic()
            self._wake.set()
            await asyncio.wait([taking])  # what it is taking at this moment must be handed back as well
            await self._hand_back()
        finally:
            for task in (stopped, *loops):
                task.cancel()
            ends = await asyncio.gather(*loops, return_exceptions=True)
            await self._forking.close()
            await asyncio.gather(warming, return_exceptions=True)
            await asyncio.to_thread(self._leave)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _warm(self) -> None:
        """Have the first run forked as well, from what runs on this machine have loaded before.

        A private worker has but one run, which would not wait for it.
        """
        if self._only is None and self._executor is self._forking:
            remembered = self._remembered()
            await self._forking.begin(child_environment(self._registry.settings), remembered)
            if remembered:
                self._report(f"worker {self.id}: has loaded {', '.join(sorted(remembered))} for its runs")

    async def _loaded(self, packages: Collection[str]) -> None:
        await self._forking.warm(packages)
        if not self._remembered().issuperset(packages):
            words = " ".join(sorted(self._remembered() | set(packages)))
            with contextlib.suppress(OSError):  # the next worker begins with less
                (self._registry.settings.home / _REMEMBERED).write_text(words)

    def _remembered(self) -> set[str]:
        """The heavy packages that runs on this machine have loaded."""
        try:
            return set((self._registry.settings.home / _REMEMBERED).read_text().split())
        except OSError:
            return set()

    def _begin(self) -> None:
        process = Process.current().to_text()
        _remove_left_folders(self._folder.parent)
        self._folder.mkdir(parents=True)
        (self._folder / "process").write_text(process)
        now = datetime.now(UTC)
        self._registry.workers.register(
            Worker(self.id, self._pool, self._capacity, socket.gethostname(), process, now, now)
        )

    async def _hand_back(self) -> None:
        """Ask what runs to end, and return when each has been written off."""
        for carried in list(self._carried):
            await carried.stop()
        while self._carried:
            await asyncio.wait(self._carried.values())
            await asyncio.sleep(0)  # lets the tasks that are done take themselves out

    def _leave(self) -> None:
        self._beat_thread.shutdown()
        self._wait_thread.shutdown(wait=False)
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(PodiumError):  # others find out by its silence
            self._registry.workers.leave(self.id)

    @property
    def _stopping(self) -> bool:
        return self._stopped_at is not None

    def _waited_enough(self) -> bool:
        """While it works it waits for the database without end; when it is to stop, for a term."""
        return self._stopped_at is not None and time.monotonic() - self._stopped_at > self._grace + self._term

    async def _take(self) -> None:
        while not self._stopping:
            newest = await self._patiently(lambda: self._registry.events.position().newest)
            began = boot_clock()
            claims = await self._patiently(self._claim)
            for claim in claims:
                self._start(claim, began)
            if not claims:
                await self._until_something_new(newest)

    def _claim(self) -> Sequence[Claim]:
        free = self._capacity
        carried = [each.claim.run for each in list(self._carried)]
        # What waits for its steps needs nothing: so one slot is enough for a pipeline of any depth.
        awaiting = self._registry.steps.awaiting([run.id for run in carried]) if carried else set()
        for run in carried:
            if run.id not in awaiting:
                free = free.less(run.resources)
        claims = self._registry.runs.claim(
            self.id,
            free=free,
            total=self._capacity,
            pool=self._pool,
            only=self._only,
            lenient=self._lenient,
        )
        if claims:
            reached("run.claimed")
        return claims

    def _start(self, claim: Claim, began: float) -> None:
        carried = Carried(claim, self._circumstances, began + _CONFIRMED_FOR * self._term)
        task = asyncio.create_task(carried.carry())
        self._carried[carried] = task
        task.add_done_callback(lambda _: self._finished(carried))

    def _finished(self, carried: Carried) -> None:
        task = self._carried.pop(carried)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(f"run {carried.claim.run.id}: {type(error).__name__}: {error}")

    async def _until_something_new(self, newest: int) -> None:
        """Until there is an event, or capacity came free, or a while has passed."""
        loop = asyncio.get_running_loop()
        event = loop.run_in_executor(self._wait_thread, self._registry.events.wait, newest, _POLL)
        woken = asyncio.create_task(self._wake.wait())
        waits: list[asyncio.Future[Any]] = [event, woken]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()
        self._wake.clear()
        if event.done() and isinstance(event.exception(), DatabaseUnavailable):
            await asyncio.sleep(_POLL)

    async def _beat(self) -> None:
        while True:
            # A confirmation counts from before the beat was written: nobody can have seen it earlier.
            began = boot_clock()
            beaten = list(self._carried)
            loop = asyncio.get_running_loop()
            try:
                held = await loop.run_in_executor(self._beat_thread, self._beat_once, beaten)
            except DatabaseUnavailable as error:
                self._report(f"worker {self.id}: its leases cannot be confirmed: {error.message}")
            else:
                for carried in beaten:
                    await carried.confirm(held.get(carried.lease.name), began + _CONFIRMED_FOR * self._term)
            await asyncio.sleep(max(0.0, began + self._term / _BEATS_IN_TERM - boot_clock()))

    def _beat_once(self, beaten: Sequence[Carried]) -> dict[str, Lease]:
        self._registry.workers.seen(self.id)
        return {lease.name: lease for lease in self._registry.leases.beat([c.lease for c in beaten])}

    async def _reap(self) -> None:
        while True:
            carried = {each.lease.name for each in self._carried}
            await asyncio.to_thread(self._reaper.look, carried)
            await asyncio.sleep(self._term / _BEATS_IN_TERM)

    async def _patiently(self, act: Callable[[], T]) -> T:
        return await patiently(act, give_up=lambda: self._stopping)


def _remove_left_folders(work: Path) -> None:
    """Remove the folders of workers of this machine that died without removing them."""
    for folder in work.glob("*"):
        try:
            left = is_known_dead((folder / "process").read_text())
        except (OSError, ValueError):
            continue
        if left:
            shutil.rmtree(folder, ignore_errors=True)
