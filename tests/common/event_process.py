"""A relay, or a consumer whose handler writes to a file, in a process of its own that a test may kill.

Usage: ``python event_process.py relay`` or ``python event_process.py consumer FILE``. Where the registry and
NATS are stands in the environment. The handler appends the version that was promoted, one a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from registry.connection import connect
from registry.errors import PodiumError
from registry.protocol import Registry
from triggers import Context, OnPromotion, Received, subscribe
from triggers.connection import Connection, Role, find_address
from triggers.consumer import run_consumer
from triggers.jetstream import JetStreamBus
from triggers.relay import run_relay
from triggers.served import serve_subscription


async def main(what: str, *rest: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    registry = connect()
    bus = JetStreamBus(Connection(lambda: find_address(registry.settings, Role.RELAY)))
    try:
        if what == "relay":
            await run_relay(registry, bus, stop, say)
        else:
            await consume(registry, bus, stop, Path(rest[0]))
    except PodiumError as error:
        say(error.message)
        sys.exit(error.exit_status)
    finally:
        await bus.close()
        registry.close()


async def consume(registry: Registry, bus: JetStreamBus, stop: asyncio.Event, path: Path) -> None:
    @subscribe(OnPromotion(), backoff=0.01)
    def note(event: Received[Any], context: Context) -> None:
        line = f"{event.key} {event.data.to_version}\n".encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line)  # one write: a kill leaves the line or nothing
        os.close(descriptor)

    served = [serve_subscription("test", note)]
    await run_consumer(registry, bus, "test", lambda: served, stop, say)


def say(line: str, *, healthy: bool = True) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
