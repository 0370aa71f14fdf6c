"""Simulated processes: they are killed, paused and slow, each with all that runs in it.

A process that was killed does nothing more: whatever still unwinds in it (``finally`` blocks, cancelled
tasks) meets `Killed` at the next thing it asks of the world, so that nothing of it reaches the outside.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

#: The process that the code running now belongs to. Tasks take it over from those that make them.
current: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Killed(BaseException):
    """Ends the work of a process at the line where it is."""


class Process:
    """One process of a world, from its start to its end."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.death: asyncio.Future[None] = world.loop.create_future()
        self.tasks: dict[asyncio.Task[object], None] = {}  # in the order in which they began
        self._paused_until = 0.0
        self._skew = world.random.uniform(-1, 1) * world.faults.skew if world.faults.skew else 0.0
        self._strand: _Strand | None = None

    def check(self) -> None:
        """Raise `Killed` in what is left of a dead process."""
        if not self.alive:
            raise Killed(self.name)

    def kill(self) -> None:
        """End it, as SIGKILL would."""
        if self.alive:
            self.alive = False
            self.world.note(f"{self.name} killed")
            if not self.death.done():
                self.death.set_result(None)

    def pause(self, seconds: float) -> None:
        """Stop it for a while, as SIGSTOP or a stalled machine would."""
        self._paused_until = max(self._paused_until, self.world.now + seconds)

    def wall_clock(self) -> datetime:
        """The time, as this process's machine has it."""
        return self.world.wall_clock() + timedelta(seconds=self._skew)

    async def step(self) -> None:
        """Let time pass before the next thing that this process does to the world."""
        self.check()
        await asyncio.sleep(self.world.delay())
        if self.world.happens(self.world.faults.pause):
            self.pause(self.world.random.uniform(0, 3 * self.world.term))
        while self.alive and self._paused_until > self.world.now:
            await asyncio.sleep(self._paused_until - self.world.now)
        self.check()

    async def __call__(self, call: Callable[[], T]) -> T:
        """Run a blocking call of the registry (`triggers.calls.Calls`), alone."""
        await self.step()
        with self.world.inside(self):
            return call()

    async def interleaved(self, call: Callable[[], T]) -> T:
        """Run a blocking call; others may do something before each of its transactions."""
        await self.step()
        strand = _Strand(call)
        while True:
            with self.world.inside(self):
                self._strand = strand
                done = strand.resume()
                self._strand = None
            if done:
                return strand.result()
            try:
                await asyncio.sleep(strand.sleeps)
                await self.step()
            except BaseException as error:
                strand.end(error)
                raise

    def between_transactions(self) -> None:
        """A place where another process may come first, if this one is `interleaved`."""
        self.check()
        self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        """In a call that is `interleaved`: let time pass and others work, as `time.sleep` would."""
        if self._strand is not None and self._strand.is_current:
            self._strand.suspend(seconds)


class _Strand:
    """A blocking call that can be left where it stands, and gone on with later."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._greenlet = greenlet(call)
        self._greenlet.gr_context = contextvars.copy_context()
        self._value: object = None
        self.sleeps = 0.0  # seconds that it does nothing, from where it stands

    @property
    def is_current(self) -> bool:
        return getcurrent() is self._greenlet

    def resume(self) -> bool:
        """Let it go on to its next stop; whether it has come to its end. Raises what it raises."""
        self._value = self._greenlet.switch()
        return self._greenlet.dead

    def suspend(self, seconds: float) -> None:
        self.sleeps = seconds
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()

    def end(self, error: BaseException) -> None:
        """Let it unwind from where it is."""
        with suppress(Killed):
            self._greenlet.throw(Killed(str(error)))

    def result(self) -> object:
        return self._value
