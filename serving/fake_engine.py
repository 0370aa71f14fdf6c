"""An `Engine` without a process: the real middleware around `FakeVLLM`, in this event loop.

It lets a thousand schedules of the controller run in seconds. `kill`, `freeze` and the delays are what tests
turn; everything else behaves as the supervised process does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx

from serving.engine import Answer, Fence, Launch, Observation, Phase, RouteMap
from serving.errors import EngineUnavailable
from serving.fake_vllm import FakeVLLM
from serving.middleware import AliasMiddleware
from serving.wire import ReplicaClient

__all__ = ["FakeEngine"]

_TOKEN = "the-fake-engines-token"


class FakeEngine:
    """One replica in this process. It outlives a controller as long as somebody holds the object."""

    def __init__(self, *, start_looks: int = 0) -> None:
        self.start_looks = start_looks  # observations until a start is ready
        self.fails_to_start = False
        self.starts = 0
        self.app: FakeVLLM | None = None
        self.middleware: AliasMiddleware | None = None
        self._launch: Launch | None = None
        self._looks_left = 0
        self._dead = ""
        self._frozen = False
        self._client: ReplicaClient | None = None

    async def start(self, launch: Launch) -> None:
        self.starts += 1
        self._launch, self._looks_left, self._dead, self._frozen = launch, self.start_looks, "", False
        self.app = FakeVLLM(
            launch.base_name, str(launch.base_path), die=lambda: self.kill("it died of a load")
        )
        self.middleware = AliasMiddleware(self.app, _TOKEN)
        transport = httpx.ASGITransport(self.middleware, raise_app_exceptions=False)
        self._client = ReplicaClient("http://fake", _TOKEN, transport)
        if self.fails_to_start:
            self.kill("it failed to start")

    async def observe(self) -> Observation:
        if self._launch is None:
            return Observation(Phase.ABSENT)
        if self._dead:
            return Observation(Phase.DEAD, fingerprint=self._launch.fingerprint, detail=self._dead)
        if self._frozen:
            return Observation(
                Phase.SILENT, fingerprint=self._launch.fingerprint, detail="it does not answer"
            )
        if self._looks_left > 0:
            self._looks_left -= 1
            return Observation(Phase.STARTING, fingerprint=self._launch.fingerprint)
        return replace(await self._speak().observe(), fingerprint=self._launch.fingerprint)

    async def load(self, name: str, path: Path, fence: Fence) -> None:
        await self._speak().load(name, path, fence)
        self._speak()

    async def unload(self, name: str, fence: Fence) -> None:
        await self._speak().unload(name, fence)

    async def complete(self, model: str, prompts: Sequence[str], max_tokens: int = 1) -> list[Answer]:
        return await self._speak().complete(model, prompts, max_tokens)

    async def apply(self, routes: RouteMap, boot: str) -> None:
        await self._speak().apply(routes, boot)

    async def drain(self, fence: Fence, boot: str) -> None:
        await self._speak().drain(fence, boot)

    async def stop(self, grace: float) -> None:
        self._launch, self._dead, self.app, self.middleware = None, "", None, None
        await asyncio.sleep(0)

    async def close(self) -> None:
        return

    def kill(self, why: str = "it was killed") -> None:
        """End it as SIGKILL would."""
        self._dead = why

    def freeze(self) -> None:
        """Let it live and answer nothing."""
        self._frozen = True

    def client(self) -> httpx.AsyncClient:
        """A client of the replica, without the token."""
        if self.middleware is None or self._dead or self._frozen:
            raise EngineUnavailable("The fake engine does not answer.", remedy="Start it.")
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.middleware), base_url="http://fake")

    def _speak(self) -> ReplicaClient:
        if self._client is None or self._launch is None or self._dead or self._frozen:
            raise EngineUnavailable(f"The fake engine does not answer: {self._dead}.", remedy="Start it.")
        return self._client
