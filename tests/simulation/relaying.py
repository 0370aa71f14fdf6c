"""Worlds in which aliases move while relays copy the events to a stream that loses things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation import oracle
from tests.simulation.actors import relay, writer
from tests.simulation.beginning import beginning
from tests.simulation.oracle import Acknowledged
from tests.simulation.world import FAIR, Faults, Kill, World

Trouble = Callable[[World], Awaitable[None]]


def play(
    seed: int = 0,
    *,
    faults: Faults = FAIR,
    kill: Kill | None = None,
    moves: int = 5,
    writers: int = 2,
    relays: int = 2,
    trouble: Trouble | None = None,
) -> World:
    """Run one schedule to its quiet end and check it. Raises `world.Broken`."""
    world = World(beginning(), seed=seed, faults=faults, kill=kill)
    acknowledged = Acknowledged()

    async def main() -> None:
        for number in range(writers):
            world.start(f"writer-{number}", writer(acknowledged, moves))
        for number in range(relays):
            world.start(f"relay-{number}", relay())
        if trouble is not None:
            await trouble(world)
        writing = [name for name in world.actors if name.startswith("writer")]
        await world.until(lambda: world.ended(writing), "the writers' end")
        world.heal()
        await world.until(lambda: oracle.quiet(world), "all events in the stream")

    world.run(main())
    oracle.check_promotions(world, acknowledged)
    oracle.check_streams(world)
    oracle.check_incarnations(world)
    return world


async def stream_trouble(world: World) -> None:
    """Now and then the stream loses its end, or goes altogether."""
    for _ in range(world.random.randint(1, 2)):
        await asyncio.sleep(world.random.uniform(0, 3 * world.term))
        if world.happens(0.5):
            world.lose_stream()
        else:
            world.cut_stream(world.random.randint(1, 4))
