"""The reconcile loop: one task a deployment, each led by lease, woken by events and by the clock.

An event only wakes it early. What is to be done is always read anew, so that a lost event, a NATS that is
down, or a restart costs at most one poll.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from registry.errors import InvalidApp, PodiumError, StaleAuthority
from registry.protocol import Registry
from serving.controller import Controller, Report
from serving.deployment import Deployment
from serving.desiring import Declared
from serving.engine import Engine, Observation, Phase
from serving.errors import EngineUnavailable, StaleController
from serving.leadership import Leadership
from serving.metrics import unwatch, watch
from serving.middleware import Fence
from serving.parts import MakeParts, Parts, parts_on_this_machine

__all__ = ["Source", "declared_in", "run_controllers"]

#: What is to be kept true now, by deployment name. Blocks on the database.
Source = Callable[[], Mapping[str, Declared]]

FOLLOW_SECONDS = 2.0  # between tries to lead what another leads
TROUBLE_SECONDS = 2.0  # after an error that is nobody's account
WATCH_SECONDS = 1.0  # longest wait for an event before the stop flag is looked at
# Both together stay below the time that `podium up` gives its services to end.
SHUTDOWN_DRAIN_SECONDS = 8.0
SHUTDOWN_GRACE_SECONDS = 12.0


def declared_in(registry: Registry, report: Report = lambda name, line: None) -> dict[str, Declared]:
    """The deployments of all apps, and those that are no longer declared and not yet undone.

    One that this version cannot read is left as it is, and reported.
    """
    declared: dict[str, Declared] = {}
    known = registry.apps.objects(Deployment.deployable)
    for stored in known:
        try:
            deployment = Deployment.from_json(stored.name, stored.body)
        except InvalidApp as error:
            report(stored.name, f"{error.message} {error.remedy}")
            continue
        declared[stored.name] = Declared(deployment, stored.revision)
    for name in registry.deployments.active():
        if name not in {stored.name for stored in known}:
            declared[name] = Declared(Deployment(name, base="removed:v1"), 0, removed=True)
    return declared


async def run_controllers(
    registry: Registry,
    wake: asyncio.Event,
    stop: asyncio.Event,
    report: Report,
    *,
    source: Source | None = None,
    folder: Path | None = None,
    make_parts: MakeParts | None = None,
    leave_running: bool = False,
) -> None:
    """Keep every declared deployment true until ``stop`` is set; then stop their engines and resign.

    ``wake`` may be set by anybody at any time to have it look at once. ``report`` is told (deployment, line)
    for each step. ``leave_running`` keeps the engines for the next controller to adopt.
    """
    home = folder or registry.settings.home / "serving"
    parts = make_parts or parts_on_this_machine(registry.settings.haproxy)
    read = source or (lambda: declared_in(registry, report))
    members: dict[str, _Member] = {}

    def wake_all() -> None:
        wake.set()
        for member in members.values():
            member.wake.set()

    watcher = asyncio.create_task(_watch_events(registry, wake_all, stop))
    try:
        while not stop.is_set():
            wake.clear()
            declared = await _read_declared(read, report)
            for name, what in (declared or {}).items():
                if name not in members:
                    members[name] = _Member(name, registry, home / name, parts, report)
                members[name].tell(what)
            for name in [
                n for n, member in members.items() if member.is_done or n not in (declared or members)
            ]:
                await members.pop(name).end(leave_running)
            for member in members.values():
                member.wake.set()
            await _first_of(wake, stop, FOLLOW_SECONDS)
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        await asyncio.gather(*(member.end(leave_running) for member in members.values()))


async def _read_declared(read: Source, report: Report) -> Mapping[str, Declared] | None:
    try:
        return await asyncio.to_thread(read)
    except PodiumError as error:
        report("serving", f"the declarations cannot be read: {error.message}")
        return None


async def _watch_events(registry: Registry, wake_all: Callable[[], None], stop: asyncio.Event) -> None:
    """Wake everybody whenever the registry has a new event: NATS is not needed for that."""
    newest = 0
    while not stop.is_set():
        try:
            if await asyncio.to_thread(registry.events.wait, newest, WATCH_SECONDS):
                # Before the wake-up: what comes after this number wakes everybody once more.
                newest = (await asyncio.to_thread(registry.events.position)).newest
                wake_all()
        except PodiumError:
            await asyncio.sleep(TROUBLE_SECONDS)


async def _first_of(wake: asyncio.Event, stop: asyncio.Event, timeout: float) -> None:
    """Wait for one of two events, or for ``timeout`` seconds."""
    waits = [asyncio.create_task(event.wait()) for event in (wake, stop)]
    try:
        await asyncio.wait(waits, timeout=max(0.0, timeout), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


class _Member:
    """One deployment in this process: leads it when it can, and then controls it."""

    def __init__(
        self, name: str, registry: Registry, folder: Path, make_parts: MakeParts, report: Report
    ) -> None:
        self._name = name
        self._registry = registry
        self._folder = folder
        self._make_parts = make_parts
        self._report = report
        self._leadership = Leadership(name, registry)
        self._declared: Declared | None = None
        self._controller: Controller | None = None
        self._parts = Parts({})
        self._said = ""
        self._stopping = asyncio.Event()
        self.wake = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._running = asyncio.create_task(self._run())

    @property
    def is_done(self) -> bool:
        return self._running.done()

    def tell(self, declared: Declared) -> None:
        """Say what is to be kept true."""
        self._declared = declared

    async def end(self, leave_running: bool) -> None:
        """Stop controlling; stop the engines unless they are to be adopted; resign."""
        self._stopping.set()
        unwatch(self._name)
        self._running.cancel()  # at any line: whoever leads next looks and goes on from there
        await asyncio.gather(self._running, return_exceptions=True)
        if self._leadership.lease is not None and not leave_running:
            await self._shut_down()
        await self._close_parts()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await asyncio.to_thread(self._leadership.resign)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            self.wake.clear()
            try:
                again = await self._turn()
            except StaleAuthority:
                self._report(self._name, "another controller leads now")
                self._leadership.lose()
                unwatch(self._name)
                again = FOLLOW_SECONDS
            except PodiumError as error:
                self._say_once(f"{error.message} {error.remedy}".strip())
                again = TROUBLE_SECONDS
            except Exception as error:  # one deployment's trouble must not end the others, or itself
                self._report(self._name, f"unexpected {type(error).__name__}: {error}")
                again = TROUBLE_SECONDS
            await _first_of(self.wake, self._stopping, again)

    async def _turn(self) -> float:
        """Lead if possible, and do what is to be done; seconds until it should look again."""
        declared = self._declared
        if declared is None:
            return FOLLOW_SECONDS
        if self._leadership.lease is None:
            self._controller = None
            if not await asyncio.to_thread(self._leadership.try_lead):
                if self._leadership.is_led_elsewhere:
                    await self._give_way(declared)
                self._say_once("another controller leads it; this one stands by")
                return FOLLOW_SECONDS
            self._said = ""
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._leadership.keep())
        if self._controller is None or self._controller.declared != declared:
            await self._take_charge(declared)
        assert self._controller is not None
        left = await self._controller.settle()
        if declared.removed and not left.waiting:
            self._stopping.set()
        return max(0.01, left.wake_at - time.time())

    def _say_once(self, line: str) -> None:
        if line != self._said:
            self._report(self._name, line)
        self._said = line

    async def _take_charge(self, declared: Declared) -> None:
        assert self._leadership.lease is not None
        await self._close_parts()
        self._parts = self._make_parts(declared.deployment, self._folder)
        registry = self._leadership.acting()
        self._controller = Controller(
            declared,
            registry,
            self._parts.engines,
            self._parts.staging(self._folder / "files", registry),
            epoch=self._leadership.lease.epoch,
            front=self._parts.front,
            measure=self._parts.measure,
            report=self._report,
        )
        asks = {i: engine.metrics for i, engine in self._parts.engines.items() if hasattr(engine, "metrics")}
        watch(self._name, lambda controller=self._controller: controller.sight, asks)

    async def _close_parts(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self._parts.engines.values()))
        if self._parts.front is not None:
            await self._parts.front.close()

    async def _give_way(self, declared: Declared) -> None:
        """End what runs here of a deployment that another machine leads: nobody keeps it up to date."""
        if not self._parts.engines:
            self._parts = self._make_parts(declared.deployment, self._folder)
        seen = await asyncio.gather(*(engine.observe() for engine in self._parts.engines.values()))
        # Another container may lead from the same folder: only what lives here is this one's to end.
        if any(each.phase not in (Phase.ABSENT, Phase.DEAD) for each in seen):
            await self._shut_down()

    async def _shut_down(self) -> None:
        """Drain and stop all engines, then the proxy before them."""
        await asyncio.gather(*(self._stop(i, engine) for i, engine in self._parts.engines.items()))
        if self._parts.front is not None:
            await self._parts.front.stop()
        if self._controller is not None and self._leadership.lease is not None:
            with suppress(PodiumError):  # the engines have ended all the same
                await self._controller.leave()

    async def _stop(self, index: int, engine: Engine) -> None:
        """Drain one engine for a while, then stop it."""
        seen = await engine.observe()
        if seen.phase is Phase.ABSENT:
            return
        self._report(self._name, f"stop replica {index}")
        if seen.phase is Phase.READY and seen.map is not None and seen.boot is not None:
            await self._drain(engine, seen, seen.map.fence)
        await engine.stop(SHUTDOWN_GRACE_SECONDS)

    async def _drain(self, engine: Engine, seen: Observation, fence: Fence) -> None:
        deadline = time.monotonic() + SHUTDOWN_DRAIN_SECONDS
        with suppress(EngineUnavailable, StaleController):
            await engine.drain(fence, seen.boot or "")
        while seen.in_flight and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            seen = await engine.observe()
