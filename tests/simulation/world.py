"""A world: its clock, its database, its broker, its processes, and what goes wrong in it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from registry import crashpoints
from registry.errors import PodiumError
from registry.settings import Settings
from tests.simulation.clock import VirtualLoop
from tests.simulation.process import Killed, Process, current
from tests.simulation.storage import image_of, new_connection
from trainers import places
from triggers.bus import Stream
from triggers.memory import MemoryBus

T = TypeVar("T")

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_TERM = 3.0  # seconds of a lease's term


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Faults:
    """How likely each thing is to go wrong each time that it can. All zero: fair weather."""

    delay: float = 0.002  # mean seconds that a step takes
    crash: float = 0.0  # at a named point
    pause: float = 0.0  # before a step, of a whole process, up to three terms of a lease
    database_away: float = 0.0  # before a transaction
    commit_unknown: float = 0.0  # the answer to a commit is lost
    broker_away: float = 0.0  # before or after a call's effect
    publish_late: float = 0.0  # a publish is given up and happens later
    forget_ids: float = 0.0  # the broker forgets which ids it has seen
    deliver_twice: float = 0.0  # an event is delivered again
    store_away: float = 0.0  # before or after a chunk is stored
    skew: float = 0.0  # seconds, at most, that a process's clock on the wall is wrong by


FAIR = Faults()
ROUGH = Faults(
    crash=0.03,
    pause=0.004,
    database_away=0.01,
    commit_unknown=0.01,
    broker_away=0.02,
    publish_late=0.02,
    forget_ids=0.02,
    deliver_twice=0.05,
    store_away=0.05,
    skew=5.0,
)


@dataclass(frozen=True)
class Kill:
    """One death: at the ``count``-th time that some process comes to ``point``."""

    point: str
    count: int = 1


@dataclass(frozen=True)
class Beginning:
    """What a world begins with: a database with versions in it, and their chunks."""

    image: bytes
    chunks: dict[str, bytes]
    database_id: str


@dataclass
class World:
    """Everything outside of the processes, and the processes' supervisor."""

    beginning: Beginning
    seed: int = 0
    faults: Faults = FAIR
    kill: Kill | None = None
    term: float = _TERM
    counts: Counter[str] = field(default_factory=Counter)  # how often each named point was reached
    log: list[str] = field(default_factory=list)  # what happened, for a failure's message
    on_commit: list[Callable[[], None]] = field(default_factory=list)  # called after each commit
    puts: list[tuple[str, str]] = field(default_factory=list)  # (process, chunk) in order
    bus: MemoryBus = field(default_factory=MemoryBus)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.ids = random.Random(self.seed)  # of runs, events and workers: part of what a seed decides
        self.loop = VirtualLoop()
        self.loop.set_task_factory(_owned_task)
        self.connection: sqlite3.Connection = new_connection(self.beginning.image)
        self.chunks = dict(self.beginning.chunks)
        self.database_id = self.beginning.database_id
        self.settings = Settings(home=Path("/nonexistent"), actor="ada", lease_seconds=self.term)
        self._inside: Process | None = None
        self.actors: dict[str, asyncio.Task[None]] = {}
        self._living: dict[str, Process] = {}
        self._late: set[asyncio.Task[object]] = set()
        self.losses = 0  # times that the stream lost something
        self.errors: list[BaseException] = []  # what actors raised that nothing explains

    @property
    def now(self) -> float:
        return self.loop.time()

    def wall_clock(self) -> datetime:
        return _BEGINNING + timedelta(seconds=self.now)

    def note(self, said: str) -> None:
        self.log.append(f"{self.now:9.3f}  {said}")

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def delay(self) -> float:
        return self.random.expovariate(1 / self.faults.delay) if self.faults.delay else 0.0

    # Processes

    def start(
        self,
        name: str,
        main: Callable[[Process], Awaitable[None]],
        *,
        expects: type[PodiumError] | None = None,
    ) -> None:
        """Run ``main`` in a process that is started again when it dies, until it ends by itself."""
        self.actors[name] = self.loop.create_task(self._supervise(name, main, expects))

    async def _supervise(
        self, name: str, main: Callable[[Process], Awaitable[None]], expects: type[PodiumError] | None
    ) -> None:
        while True:
            process = self._living[name] = Process(self, name)
            try:
                ended = await self._live(process, main)
            except Exception as error:
                if expects is None or not isinstance(error, expects):
                    self.errors.append(error)
                    return
                self.note(f"{name} stopped: {error}")
                ended = False
            if ended:
                return
            await asyncio.sleep(self.random.uniform(0.01, self.term))

    async def _live(self, process: Process, main: Callable[[Process], Awaitable[None]]) -> bool:
        """Whether ``main`` came to its end before the process was killed."""
        token = current.set(process)
        work = self.loop.create_task(_awaiting(main(process)))
        current.reset(token)
        await asyncio.wait((work, process.death), return_when=asyncio.FIRST_COMPLETED)
        survived = process.alive
        process.alive = False
        await self._bury(process)
        if survived and not work.cancelled():
            error = work.exception()
            if error is not None and not isinstance(error, Killed):
                raise error
            return error is None
        return False

    async def _bury(self, process: Process) -> None:
        left = [task for task in process.tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            _, immortal = await asyncio.wait(left, timeout=60)
            assert not immortal, f"tasks of a dead process that do not end: {immortal}"

    def adopt(self, process: Process) -> None:
        """Take on a process that another one has started: it ends with the world at the latest."""
        self._living[process.name] = process

    def process(self, name: str) -> Process:
        """The process of that name that runs now, or ran last."""
        return self._living[name]

    def kill_all(self) -> None:
        for process in self._living.values():
            process.kill()

    @contextmanager
    def inside(self, process: Process) -> Iterator[None]:
        """The block is this process's work: points reached in it, in whatever thread, are its own."""
        before, self._inside = self._inside, process
        try:
            yield
        finally:
            self._inside = before

    def _reached(self, point: str) -> None:
        process = self._inside or current.get()
        if process is None:
            return
        process.check()
        self.counts[point] += 1
        due = self.kill is not None and (self.kill.point, self.kill.count) == (point, self.counts[point])
        if due or self.happens(self.faults.crash):
            self.note(f"{process.name} dies at {point}")
            process.kill()
            raise Killed(point)

    # Time

    def later(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do something a little later, whoever lives then."""

        async def wait() -> object:
            await asyncio.sleep(self.random.expovariate(1 / self.term))
            return await act()

        task = self.loop.create_task(wait())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def run(self, main: Awaitable[T], *, limit: float = 3600.0) -> T:
        """Run the world until ``main`` has ended, at most ``limit`` simulated seconds."""

        async def bounded() -> T:
            async with asyncio.timeout(limit):
                return await main

        with crashpoints.observed_by(self._reached):
            try:
                return self.loop.run_until_complete(bounded())
            finally:
                self._end()

    def ended(self, names: Iterable[str]) -> bool:
        """Whether these actors have come to their end."""
        return all(self.actors[name].done() for name in names)

    async def until(self, condition: Callable[[], bool], what: str, *, limit: float = 100.0) -> None:
        """Look until ``condition`` holds; it must within ``limit`` simulated seconds."""
        deadline = self.now + limit
        while not condition():
            if self.errors:
                raise Broken(f"{self.errors[0]!r}\n{self.story()}") from self.errors[0]
            if self.now > deadline:
                raise Broken(f"never came: {what}\n{self.story()}")
            await asyncio.sleep(0.1)

    @property
    def is_fair(self) -> bool:
        """Whether nothing goes wrong."""
        return self.faults == Faults(delay=self.faults.delay)

    def heal(self) -> None:
        """End all faults; what was killed is started again, what is paused goes on."""
        self.faults = Faults(delay=self.faults.delay)

    def story(self, lines: int = 60) -> str:
        """What happened last, and how to see it again."""
        return "\n".join([f"seed {self.seed}, {self.kill}:", *self.log[-lines:]])

    def _end(self) -> None:
        self.kill_all()
        pending = asyncio.all_tasks(self.loop)
        for task in pending:
            task.cancel()
        if pending:
            self.loop.run_until_complete(asyncio.wait(pending, timeout=120))
        self.loop.close()

    # The broker's own faults

    def stream(self) -> Stream:
        (incarnation,) = self.connection.execute("SELECT incarnation FROM podium").fetchone()
        return Stream(self.database_id, incarnation)

    def forget_some_ids(self, stream: Stream) -> None:
        log = self.bus.logs.get(stream)
        if log is not None and self.happens(self.faults.forget_ids):
            log.ids.clear()

    def lose_stream(self) -> None:
        """The newest stream is gone."""
        if self.bus.logs:
            newest = max(self.bus.logs, key=lambda stream: stream.incarnation)
            self.note(f"{newest.name} is lost")
            del self.bus.logs[newest]
            self.losses += 1

    def cut_stream(self, count: int) -> None:
        """The newest stream loses its last events, as a broker restored from a copy does."""
        log = self.bus.logs.get(self.stream())
        for _ in range(min(count, len(log.events) if log else 0)):
            assert log is not None
            log.ids.discard(log.events.pop().id)
            log.floors = {name: min(floor, len(log.events)) for name, floor in log.floors.items()}
        self.note(f"the stream lost its last {count} events")
        self.losses += 1

    # The database's own faults

    def backup(self) -> bytes:
        return image_of(self.connection)

    def restore(self, image: bytes) -> None:
        """Put the database back to an earlier state, with everything that uses it ended."""
        self.kill_all()
        self.note("the database was restored from a backup")
        old, self.connection = self.connection, new_connection(image)
        old.close()


async def _awaiting(main: Awaitable[None]) -> None:
    await main


def _owned_task(
    loop: asyncio.AbstractEventLoop, coroutine: object, **options: object
) -> asyncio.Task[object]:
    """Each task belongs to the process whose code makes it, and ends with it. Pipelines number theirs."""
    make: Callable[..., asyncio.Task[object]] = places._begin if places._branch.get() else _task
    task = make(loop, coroutine, **options)
    process = current.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda task: process.tasks.pop(task, None))
    return task


def _task(loop: asyncio.AbstractEventLoop, coroutine: object, **options: object) -> asyncio.Task[object]:
    return asyncio.Task(coroutine, loop=loop, **options)  # type: ignore[arg-type]
