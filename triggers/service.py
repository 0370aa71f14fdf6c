"""What `podium up` runs of this room: the embedded server, the relay, deployed triggers and handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from registry.errors import PodiumError
from registry.protocol import Registry
from registry.services import Report
from triggers.connection import Connection, Role, find_address
from triggers.consumer import run_consumer
from triggers.deployed import TRIGGERS, AppProcesses, DeployedTriggers
from triggers.jetstream import JetStreamBus
from triggers.nats_server import run_server
from triggers.relay import run_relay
from triggers.tasks import wait_for_event

_RETRY_SECONDS = 1.0
_SETTLING_SECONDS = 10.0  # in which parts find each other, and no trouble is told that passes by itself

Part = Callable[[Report], Awaitable[None]]


async def events(registry: Registry, stop: asyncio.Event, report: Report, options: Mapping[str, Any]) -> None:
    """Carry events from the outbox to everything that is deployed for them (`registry.services.Service`)."""
    await run_events(registry, stop, report)


async def run_events(registry: Registry, stop: asyncio.Event, report: Report) -> None:
    """Run the relay and everything deployed until ``stop``; and a server, unless PODIUM_NATS names one."""
    settings = registry.settings
    relay_connection = Connection(lambda: find_address(settings, Role.RELAY), name="podium relay")
    relay_bus = JetStreamBus(relay_connection, replicas=settings.nats_replicas)
    reader_bus = JetStreamBus(Connection(lambda: find_address(settings, Role.READER), name="podium triggers"))
    find = DeployedTriggers(registry)
    server_stop = asyncio.Event()
    parts: dict[str, Part] = {
        "relay": lambda say: run_relay(registry, relay_bus, stop, say),
        "triggers": lambda say: run_consumer(registry, reader_bus, TRIGGERS, find, stop, say),
        "handlers": lambda say: AppProcesses(registry, say).run(stop),
    }
    server = asyncio.create_task(_serve(registry, server_stop, report))
    try:
        async with asyncio.TaskGroup() as group:  # a bug in one part ends them all, and they start again
            for name, part in parts.items():
                group.create_task(_keep(part, stop, _named(name, report)))
    finally:
        await relay_bus.close()
        await reader_bus.close()
        server_stop.set()  # last, so that everything else could end in order
        await server


async def _serve(registry: Registry, stop: asyncio.Event, report: Report) -> None:
    if registry.settings.nats is None:
        home = registry.settings.home
        await _keep(lambda say: run_server(home, stop, say), stop, _named("nats", report))


async def _keep(part: Part, stop: asyncio.Event, report: Report) -> None:
    """Start a part again when it ends by an error, and say so: the parts need each other, not all at once."""
    while not stop.is_set():
        try:
            await part(report)
        except PodiumError as error:
            report(f"{error.message} {error.remedy}", healthy=False)
            await wait_for_event(stop, _RETRY_SECONDS)


def _named(name: str, report: Report) -> Report:
    """Reports of one part: with its name, and only when something has changed.

    At the start parts wait for each other. That is told only if it lasts.
    """
    loop = asyncio.get_running_loop()
    settled = loop.time() + _SETTLING_SECONDS
    last = ""
    held: asyncio.TimerHandle | None = None

    def say(line: str, *, healthy: bool = True) -> None:
        nonlocal last, held
        if line == last:
            return
        last = line
        if held is not None:
            held.cancel()
        tell = partial(report, f"{name}: {line}", healthy=healthy)
        if healthy or loop.time() >= settled:
            tell()
        else:
            held = loop.call_at(settled, tell)

    return say
