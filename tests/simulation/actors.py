"""What runs in the processes of a world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from registry.errors import DatabaseUnavailable, PodiumError
from registry.values import Promotion
from tests.simulation.beginning import ARTIFACTS, VERSIONS
from tests.simulation.blobs import SharedStore
from tests.simulation.broker import SharedBus
from tests.simulation.oracle import Acknowledged
from tests.simulation.process import Process
from tests.simulation.storage import SharedRegistry
from triggers import adopting
from triggers.relay import run_relay

Main = Callable[[Process], Awaitable[None]]

ALIASES = ("candidate", "production")


def registry_of(process: Process, actor: str | None = None, *, home: Path | None = None) -> SharedRegistry:
    """The registry as a process has it; ``home`` is a folder for those that keep files."""
    settings = process.world.settings
    if home is not None:
        settings = settings.model_copy(update={"home": home})
    return SharedRegistry.of(process, SharedStore(process), actor or f"user:{process.name}", settings)


def writer(acknowledged: Acknowledged, moves: int) -> Main:
    """Promotes, rolls back and releases, ``moves`` times in all its lives, and remembers what it was told."""
    left = [moves]

    async def main(process: Process) -> None:
        registry = registry_of(process)
        while left[0] > 0:
            left[0] -= 1  # before the attempt: one that dies in it is not made again
            await _move(process, registry, acknowledged)

    return main


async def _move(process: Process, registry: SharedRegistry, acknowledged: Acknowledged) -> None:
    random = process.world.random
    name, alias = random.choice(ARTIFACTS), random.choice(ALIASES)
    number = random.randint(1, VERSIONS)
    act: Callable[[], Promotion]
    expected: int | None = None
    match random.choices(("promote", "expect", "rollback", "release"), (4, 4, 1, 1))[0]:
        case "promote":
            act = lambda: registry.promotions.promote(f"{name}:v{number}", alias)  # noqa: E731
        case "expect":
            expected = await _generation(process, registry, name, alias)
            if expected is None:
                return
            act = lambda: registry.promotions.promote(  # noqa: E731
                f"{name}:v{number}", alias, expect_generation=expected
            )
        case "rollback":
            act = lambda: registry.promotions.rollback(name, alias)  # noqa: E731
        case _:
            with suppress(PodiumError):
                await process.interleaved(lambda: registry.promotions.release(name, alias))
            return
    try:
        moved = await process.interleaved(act)
    except DatabaseUnavailable:
        return  # nobody knows what became of it
    except PodiumError:
        acknowledged.refused += 1
        return
    if moved.changed:
        process.world.note(f"{process.name} moved {name}:{alias} to generation {moved.generation}")
        acknowledged.moves.append(moved)
        if expected is not None:
            acknowledged.expected[(name, alias, moved.generation)] = expected


async def _generation(process: Process, registry: SharedRegistry, name: str, alias: str) -> int | None:
    """Where the alias is now; 0 for one that is not there, None when nobody says."""
    try:
        return (await process(lambda: registry.promotions.get(name, alias))).generation
    except DatabaseUnavailable:
        return None
    except PodiumError:
        return 0


def relay(reports: list[str] | None = None) -> Main:
    """Relays whenever it leads."""

    async def main(process: Process) -> None:
        registry, bus = registry_of(process, "system:up"), SharedBus(process)

        def report(line: str, *, healthy: bool = True) -> None:
            process.world.note(f"{process.name}: {line}")
            if reports is not None and not healthy:
                reports.append(line)

        while True:
            with suppress(DatabaseUnavailable):
                await run_relay(registry, bus, asyncio.Event(), report)
            await asyncio.sleep(0.1)

    return main


async def adopt(process: Process) -> None:
    """A person says that the database is right and the stream is not."""
    await adopting.adopt(registry_of(process), SharedBus(process))
