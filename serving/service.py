"""The serving controllers that `podium up` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from registry.protocol import Registry
from registry.services import Report
from serving.metrics_server import metrics_at
from serving.reconcile import run_controllers

__all__ = ["serving"]


async def serving(
    registry: Registry, stop: asyncio.Event, report: Report, options: Mapping[str, Any]
) -> None:
    """Keep every declared deployment true until ``stop`` is set."""
    report("ready; nothing is deployed" if not registry.apps.objects("deployment") else "starting")
    with metrics_at(registry.settings.metrics):
        await run_controllers(registry, asyncio.Event(), stop, lambda name, line: report(f"{name}: {line}"))
