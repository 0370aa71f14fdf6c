"""Beginning a new stream because a person said so: after the database was restored from a backup."""

from __future__ import annotations

import asyncio

from registry.protocol import Registry
from triggers.bus import Bus, Condition, Stream
from triggers.errors import StreamAhead


async def adopt(registry: Registry, bus: Bus) -> int:
    """Begin incarnations until one is found that no stream exists of, make its stream; its number.

    Raises:
        BrokerUnavailable: the broker cannot be reached; one incarnation has been begun.
    """
    while True:
        position = await asyncio.to_thread(registry.events.begin_incarnation)
        stream = Stream(position.database_id, position.incarnation)
        if (await bus.state(stream)).condition is not Condition.ABSENT:
            continue
        try:
            await bus.create(stream)
        except StreamAhead:
            continue  # the backup was so old that more than one stream has begun since
        return position.incarnation
