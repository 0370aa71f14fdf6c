"""What `podium up` runs of this room: a worker, and a watch over the runs of all workers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from registry.protocol import Registry
from registry.services import Report
from trainers.machine import capacity
from trainers.reaping import Reaper
from trainers.worker import run_worker

#: Looks at the leases in one term of a lease.
_LOOKS_IN_TERM = 5


async def worker(registry: Registry, stop: asyncio.Event, report: Report, options: Mapping[str, Any]) -> None:
    """Take queued runs that fit until ``stop`` is set. Options are ``cpu``, ``memory`` and ``gpu``."""
    offered = capacity(options.get("cpu"), options.get("memory"), options.get("gpu"))
    await run_worker(registry, offered, stop, report)


async def reaper(registry: Registry, stop: asyncio.Event, report: Report, _: Mapping[str, Any]) -> None:
    """Look after runs, also where no worker lives to do it: those that were left, and those that wait."""
    term = registry.settings.lease_seconds
    looking = Reaper(registry, f"reaper-{secrets.token_hex(4)}", term, report)
    report("looks for runs that were left or have waited too long")
    while not stop.is_set():
        await asyncio.to_thread(looking.look, frozenset())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), term / _LOOKS_IN_TERM)
