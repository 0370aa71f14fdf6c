"""A `Front` without a process: it hands each request to one of the fake engines that it was told of.

`hold` keeps requests between proxy and replica for a while, as a busy machine does; `kill` ends it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import httpx

from serving.errors import EngineUnavailable, StaleController
from serving.fake_engine import FakeEngine
from serving.front import FrontView
from serving.middleware import Fence, Receive, Scope, Send

__all__ = ["FakeFront"]

_ADDRESS = "http://front"


class FakeFront:
    """One proxy in this process, in turns over the replicas that are routed to."""

    def __init__(self, engines: Mapping[int, FakeEngine]) -> None:
        self._engines = engines
        self._routed: dict[int, str] = {}
        self._sessions: Counter[int] = Counter()
        self._turn = 0
        self._fence = Fence()
        self.is_running = False
        self.starts = 0
        self.hold: asyncio.Event | None = None

    async def observe(self) -> FrontView:
        return FrontView(self.is_running, _ADDRESS, dict(self._routed), dict(self._sessions))

    async def route(self, backends: Mapping[int, str], fence: Fence) -> None:
        if fence < self._fence:
            raise StaleController("A newer controller routes here.", remedy="")
        self._fence = fence
        self._routed = dict(backends)  # first what a restart begins with, then the process
        self.starts += not self.is_running
        self.is_running = True

    async def stop(self) -> None:
        self.is_running = False
        self._routed = {}

    async def close(self) -> None:
        return

    def kill(self) -> None:
        """End it as SIGKILL would: what it routes is kept, as in its configuration file."""
        self.is_running = False

    def client(self) -> httpx.AsyncClient:
        """A client of the deployment."""
        if not self.is_running:
            raise EngineUnavailable("The fake proxy does not answer.", remedy="Start it.")
        return httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url=_ADDRESS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._routed:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b'{"error": {"message": "nobody"}}'})
            return
        indexes = sorted(self._routed)
        self._turn += 1
        index = indexes[self._turn % len(indexes)]
        self._sessions[index] += 1
        try:
            if self.hold is not None:
                await self.hold.wait()
            middleware = self._engines[index].middleware
            assert middleware is not None, f"replica {index} is routed to and has no process"
            await middleware(scope, receive, send)
        finally:
            self._sessions[index] -= 1
