"""What every `Engine` must do, in process or as one, fake or vLLM. Subclasses give the fixture ``place``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.engine import Engine, Fence, Launch, Observation, Phase, RouteMap
from serving.errors import AdapterRefused, EngineUnavailable, ProbeFailed, StaleController
from serving.probing import PROMPTS, differs, probe
from tests.common.clients import ask
from tests.common.loops import eventually

FENCE = Fence(1, 1, 1)
BASE = "tiny:v1"


@dataclass
class Place:
    """Where engines of one implementation are made, and adapters that they can read."""

    make: Callable[[], Engine]  # each call: the same replica, as another controller would find it
    base: Path
    one: Path
    two: Path
    unreadable: Path  # an adapter that the engine cannot load
    start_timeout: float = 20.0


class EngineSuite:
    """One replica from its start to its end. A started engine is shared, because a real one starts slowly."""

    def test_from_start_to_stop(self, place: Place) -> None:
        asyncio.run(self._life(place))

    async def _life(self, place: Place) -> None:
        engine = place.make()
        assert (await engine.observe()).phase is Phase.ABSENT
        with pytest.raises(EngineUnavailable):
            await engine.complete(BASE, PROMPTS)
        await engine.start(Launch(BASE, place.base, "right"))
        try:
            seen = await ready(engine, place)
            await self._loads(engine, place, seen)
            await self._routes(engine, place, seen)
            await self._unloads(engine, place)
            engine = await self._is_adopted(engine, place, seen)
            await self._drains(engine)
        except BaseException:
            await engine.stop(0)
            raise
        await engine.stop(20)
        assert (await engine.observe()).phase is Phase.ABSENT
        await engine.close()

    async def _loads(self, engine: Engine, place: Place, seen: Observation) -> None:
        assert (seen.base, seen.fingerprint, dict(seen.models), seen.map) == (BASE, "right", {}, None)
        baseline = await probe(engine, BASE, None)
        await engine.load("story:v1", place.one, FENCE)
        await engine.load("story:v1", place.one, FENCE)  # as a controller does that was killed in between
        await engine.load("story:v2", place.two, FENCE)
        assert (await engine.observe()).models == {"story:v1": str(place.one), "story:v2": str(place.two)}
        first, second = await probe(engine, "story:v1", baseline), await probe(engine, "story:v2", baseline)
        assert any(differs(a, b) for a, b in zip(first, second, strict=True))
        with pytest.raises(ProbeFailed, match="exactly as its base"):
            await probe(engine, BASE, await probe(engine, BASE, None))
        for path in (place.unreadable, place.one / "nowhere"):
            with pytest.raises(AdapterRefused):
                await engine.load("story:v3", path, FENCE)
        assert "story:v3" not in (await engine.observe()).models

    async def _routes(self, engine: Engine, place: Place, seen: Observation) -> None:
        assert seen.boot is not None and seen.endpoint is not None
        routes = RouteMap(FENCE, {"teller": "story:v1"}, frozenset({"story:v2", BASE}))
        await engine.apply(routes, seen.boot)
        await engine.apply(routes, seen.boot)
        assert (await engine.observe()).map == routes
        with pytest.raises(StaleController):
            await engine.apply(RouteMap(Fence(1, 0, 9), {}, frozenset()), seen.boot)
        with pytest.raises(StaleController):
            await engine.apply(RouteMap(Fence(1, 1, 2), {}, frozenset()), "another boot")

    async def _unloads(self, engine: Engine, place: Place) -> None:
        with pytest.raises(StaleController):
            await engine.unload("story:v1", FENCE)  # it is routed to
        seen = await engine.observe()
        closed = RouteMap(Fence(1, 1, 2), {"teller": "story:v1"}, frozenset({BASE}))
        await engine.apply(closed, seen.boot or "")
        with pytest.raises(StaleController):
            await engine.unload("story:v2", FENCE)  # by a controller that has not seen the new map
        await engine.unload("story:v2", closed.fence)
        await engine.unload("story:v2", closed.fence)
        assert set((await engine.observe()).models) == {"story:v1"}

    async def _is_adopted(self, engine: Engine, place: Place, seen: Observation) -> Engine:
        other = place.make()
        found = await other.observe()
        assert (found.phase, found.boot, found.fingerprint) == (Phase.READY, seen.boot, "right")
        await engine.close()
        return other

    async def _drains(self, engine: Engine) -> None:
        seen = await engine.observe()
        await engine.drain(seen.map.fence if seen.map else FENCE, seen.boot or "")
        assert (await engine.observe()).phase is Phase.DRAINING


async def ready(engine: Engine, place: Place) -> Observation:
    """The observation with which the engine came up."""

    async def is_ready() -> Observation | None:
        seen = await engine.observe()
        assert seen.phase in (Phase.STARTING, Phase.READY), seen.detail
        return seen if seen.phase is Phase.READY else None

    seen = await eventually(is_ready, place.start_timeout, "the engine is ready")
    assert seen is not None
    return seen


async def ask_once(endpoint: str, model: str) -> tuple[int, str | None]:
    """(status, version) of one request without the token."""
    import httpx

    async with httpx.AsyncClient(base_url=endpoint, trust_env=False) as http:
        asked = await ask(http, model, "Hello")
    return asked.status, asked.version
