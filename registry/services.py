"""What `podium up` runs: one service a room, found by entry point.

A room names a function in the group ``podium.services``; `podium up` starts them all in one event loop. That
is how it composes rooms that may not import each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from registry.protocol import Registry

GROUP = "podium.services"


class Report(Protocol):
    """Where a service says how it is: one line, which replaces the one before."""

    def __call__(self, line: str, *, healthy: bool = True) -> None: ...


class Service(Protocol):
    """A long-running part of podium.

    It returns soon after ``stop`` is set, having handed back its leases and stopped its children. It keeps
    itself alive: what it needs may come and go, and it says so through ``report`` instead of raising.
    ``options`` are those of `podium up` that begin with the service's name.
    """

    async def __call__(
        self, registry: Registry, stop: asyncio.Event, report: Report, options: Mapping[str, Any]
    ) -> None: ...
