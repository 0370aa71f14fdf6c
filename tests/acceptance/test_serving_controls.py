"""What must not be done, done on purpose to a real vLLM: the judgement of the other tests sees each."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serving import vllm_engine
from serving.child import Child
from serving.engine import Fence, Launch, RouteMap
from serving.vllm_engine import VLLMEngine
from tests.common.clients import Clients
from tests.common.engine_suite import Place, ready
from tests.common.serving import write_float_lora
from tests.common.stories import PROMPT, SERVED, SETTINGS, Story, faults

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

BASE = "tiny:v1"
CLIENTS = 8
# What keeps each of these mistakes out, and what it is replaced by in the copy that this vLLM runs.
_WITHOUT = (
    ("switchboard.py", "def _check_authority(self, fence: Fence, boot: str) -> None:\n", "        return\n"),
    ("switchboard.py", "def check_unload(self, name: str) -> None:\n", "        return\n"),
    ("door.py", 'elif raw.get("load_inplace"):', "elif False:"),
)


@pytest.fixture
def _unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middleware without its fence, and without its refusal to load in place."""
    place = vllm_engine.place_code

    def unguarded(folder: Path) -> Path:
        code = place(folder)
        for name, guard, without in _WITHOUT:
            file = code / "podium_middleware" / name
            text = file.read_text()
            assert guard in text, "the guard has changed: change it here, too"
            kept = guard if guard.endswith("\n") else ""
            file.write_text(text.replace(guard, kept + without))
        return code

    monkeypatch.setattr(vllm_engine, "place_code", unguarded)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "replica"
    Child(tmp_path / "replica").kill_all()


@pytest.mark.usefixtures("_unguarded")
def test_each_mistake_is_seen(folder: Path, tmp_path: Path, tiny_llama: Path) -> None:
    adapters = [write_float_lora(tmp_path / f"adapter-{seed}", tiny_llama, seed) for seed in range(3)]
    asyncio.run(_make_mistakes(folder, tiny_llama, adapters))


async def _make_mistakes(folder: Path, base: Path, adapters: list[Path]) -> None:
    engine = VLLMEngine(folder, SETTINGS)
    await engine.start(Launch(BASE, base, "x"))
    place = Place(lambda: engine, base, adapters[0], adapters[1], adapters[2], start_timeout=540)
    seen = await ready(engine, place)
    assert seen.boot is not None and seen.endpoint is not None
    mistakes = Mistakes(engine, folder, seen.boot, seen.endpoint, adapters)
    await mistakes.begin()
    try:
        assert not await mistakes.found(mistakes.nothing), "without a mistake nothing is seen"
        assert "late" in await mistakes.found(mistakes.route_as_a_stale_controller)
        assert "answered by other weights" in await mistakes.found(mistakes.reuse_a_path_with_other_bytes)
        assert "answered by other weights" in await mistakes.found(mistakes.load_in_place)
        broken = await mistakes.found(mistakes.end_it_without_draining)
        assert {"not answered", "cut short", "aborted"} & set(broken)
    finally:
        await engine.stop(1)
        await engine.close()


class Mistakes:
    """One replica, with versions 1 and 2 of a story, and clients that ask while something is done to it."""

    def __init__(
        self, engine: VLLMEngine, folder: Path, boot: str, endpoint: str, adapters: list[Path]
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._boot = boot
        self._endpoint = endpoint
        self._adapters = adapters
        self._path = folder.parent / "reused"
        self._generation = 1
        self.story = Story()

    async def begin(self) -> None:
        shutil.copytree(self._adapters[0], self._path)
        await self._engine.load("story:v1", self._path, self._fence())
        await self._engine.load("story:v2", self._adapters[1], self._fence())

    def _fence(self) -> Fence:
        return Fence(1, 1, self._generation)

    async def _route(self, ref: str) -> None:
        self._generation += 1
        opened = frozenset({"story:v1", "story:v2", BASE})
        await self._engine.apply(RouteMap(self._fence(), {SERVED: ref}, opened), self._boot)

    async def found(self, mistake: object) -> set[str]:
        """The kinds of faults that clients met while the mistake was made."""
        self.story = Story()
        async with httpx.AsyncClient(base_url=self._endpoint, timeout=60, trust_env=False) as http:
            for ref in ("story:v2", "story:v1"):
                await self._route(ref)
                await self.story.tell(http, ref)
            async with Clients(self._endpoint, SERVED, prompt=PROMPT, count=CLIENTS, max_tokens=8) as clients:
                await self._some(clients, 2 * CLIENTS)
                await mistake(http, clients)  # type: ignore[operator]
        return set(faults(clients.asked, self.story))

    async def _some(self, clients: Clients, count: int) -> None:
        """Wait until so many more have been answered, well or not."""
        until = len(clients.asked) + count
        deadline = time.monotonic() + 60
        while len(clients.asked) < until and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    async def nothing(self, http: httpx.AsyncClient, clients: Clients) -> None:
        await self._route("story:v2")
        await self.story.tell(http, "story:v2")
        await self._some(clients, 2 * CLIENTS)

    async def route_as_a_stale_controller(self, http: httpx.AsyncClient, clients: Clients) -> None:
        await self._route("story:v2")
        await self.story.tell(http, "story:v2")
        stale = RouteMap(Fence(1, 0, 1), {SERVED: "story:v1"}, frozenset({"story:v2", BASE}))
        await self._engine.apply(stale, self._boot)
        await self._some(clients, 3 * CLIENTS)

    async def reuse_a_path_with_other_bytes(self, http: httpx.AsyncClient, clients: Clients) -> None:
        await self._load(http, "unload_lora_adapter", lora_name="story:v1", checked=False)
        await self._overwrite(http, in_place=False)
        await self._some(clients, 3 * CLIENTS)

    async def load_in_place(self, http: httpx.AsyncClient, clients: Clients) -> None:
        await self._overwrite(http, in_place=True)
        await self._some(clients, 3 * CLIENTS)

    async def _overwrite(self, http: httpx.AsyncClient, *, in_place: bool) -> None:
        """Put other bytes where the version lies, and have them loaded under its name."""
        name = "adapter_model.safetensors"
        other = self._adapters[2] if not in_place else self._adapters[0]
        shutil.copyfile(other / name, self._path / name)
        body = {"lora_name": "story:v1", "lora_path": str(self._path)}
        await self._load(http, "load_lora_adapter", **body, **({"load_inplace": True} if in_place else {}))

    async def _load(
        self, http: httpx.AsyncClient, path: str, *, checked: bool = True, **body: object
    ) -> None:
        record = Child(self._folder).record
        assert record is not None
        headers = {"x-podium-token": record.token, "x-podium-fence": f"1.1.{self._generation}"}
        response = await http.post(f"/v1/{path}", json=body, headers=headers)
        assert not checked or response.status_code == 200, response.text

    async def end_it_without_draining(self, http: httpx.AsyncClient, clients: Clients) -> None:
        record = Child(self._folder).record
        assert record is not None and record.pid is not None
        os.kill(record.pid, signal.SIGTERM)
        await self._some(clients, 2 * CLIENTS)
