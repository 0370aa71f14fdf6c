"""The worker that `podium up` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from registry.protocol import Registry
from registry.services import Report
from trainers.machine import capacity
from trainers.worker import run_worker


async def worker(registry: Registry, stop: asyncio.Event, report: Report, options: Mapping[str, Any]) -> None:
    """Take queued runs that fit until ``stop`` is set. Options are ``cpu``, ``memory`` and ``gpu``."""
    offered = capacity(options.get("cpu"), options.get("memory"), options.get("gpu"))
    await run_worker(registry, offered, stop, report)
