"""The port to a deployment's front: the one address that clients keep while processes come and go behind it.

`serving.haproxy` supervises a real proxy. A deployment of one replica can do without: then clients ask the
replica itself, and its process cannot be replaced without a pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serving.middleware import Fence

__all__ = ["Front", "FrontView"]


@dataclass(frozen=True, slots=True)
class FrontView:
    """What one look at the proxy saw."""

    is_running: bool = False
    address: str | None = None  # "http://127.0.0.1:8000"
    routed: Mapping[int, str] = field(default_factory=dict)  # replica -> endpoint that gets new requests
    sessions: Mapping[int, int] = field(default_factory=dict)  # replica -> requests it was given, not ended
    detail: str = ""  # why it does not run


class Front(Protocol):
    """One proxy. Calls may be repeated; `route` and `stop` raise `EngineUnavailable` when it fails."""

    async def observe(self) -> FrontView:
        """Look at it. Never raises for a proxy that is absent or dead: it says so."""

    async def route(self, backends: Mapping[int, str], fence: Fence) -> None:
        """Send new requests to these replicas alone; start the proxy if it does not run.

        Requests that a replica was given before go on there.

        Raises:
            StaleController: a newer controller has routed here.
        """

    async def stop(self) -> None:
        """End the proxy; its address stays reserved for the next start."""

    async def close(self) -> None:
        """Let go of the proxy without ending it."""
