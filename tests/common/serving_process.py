"""The serving controllers with `FakeVLLM` processes, in a process of its own that a test may kill.

Usage: ``python -P serving_process.py``, because its folder has a module named as one of ours. Where the
registry is stands in the environment, and so does how many replicas there are.
"""

from __future__ import annotations

import asyncio
import os
import signal

from registry.connection import connect
from serving import VLLM, Deployment, run_controllers
from serving.desiring import Declared

REPLICAS = "SERVING_TEST_REPLICAS"
DEPLOYMENT = Deployment(
    "router",
    base="tiny:production",
    serves={"ticket-router": "ticket-router:production"},
    engine=VLLM(module="serving.fake_vllm", args=("--fake-token-delay", "0.01")),
    replicas=int(os.environ.get(REPLICAS, "1")),
)


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    registry = connect()
    try:
        await run_controllers(
            registry,
            asyncio.Event(),
            stop,
            lambda name, line: print(f"{name}: {line}", flush=True),
            source=lambda: {DEPLOYMENT.name: Declared(DEPLOYMENT, 1)},
        )
    finally:
        registry.close()


if __name__ == "__main__":
    asyncio.run(main())
