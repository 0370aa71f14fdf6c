"""A real vLLM under clients that never pause: what a swap must not do to anybody."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from registry.deployments import RolloutState
from registry.store.stored import StoredRegistry
from registry.values import Parent, Promotion, Role
from serving.child import Child
from serving.controller import Declared
from serving.deployment import VLLM, Deployment
from serving.reconcile import run_controllers
from tests.common.clients import Asked, Clients, ask
from tests.common.loops import eventually
from tests.common.outbox import open_registry
from tests.common.serving import write_float_lora

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

SWAPS = 20
PROMPT = "Once upon a time"


def _publish(registry: StoredRegistry, home: Path, tiny_llama: Path, adapters: int) -> list[str]:
    base = registry.catalog.publish("tiny", tiny_llama, "model").version
    refs = []
    for seed in range(adapters):
        folder = write_float_lora(home / f"adapter-{seed}", tiny_llama, seed)
        parents = [Parent(base.ref, Role.BASE)]
        refs.append(registry.catalog.publish("story", folder, "adapter", parents=parents).version.ref)
    return refs


@asynccontextmanager
async def _serving(registry: StoredRegistry) -> AsyncIterator[list[str]]:
    """`run_controllers` in this loop; gives the lines that it reports."""
    engine = VLLM(args=("--dtype", "float32", "--max-model-len", "256"))
    deployment = Deployment("stories", base="tiny:v1", serves={"teller": "story:production"}, engine=engine)
    wake, stop, lines = asyncio.Event(), asyncio.Event(), list[str]()
    task = asyncio.create_task(
        run_controllers(
            registry,
            wake,
            stop,
            lambda name, line: lines.append(f"{time.monotonic():.3f} {line}"),
            source=lambda: {"stories": Declared(deployment, 1)},
        )
    )
    try:
        yield lines
    finally:
        stop.set()
        await task


async def _live(registry: StoredRegistry, promotion: Promotion, timeout: float = 60) -> None:
    """Return when the promotion is live."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        seen = registry.events.position().newest
        found = registry.deployments.of_promotion(promotion.artifact, promotion.alias, promotion.generation)
        if found and found[-1].ended_at is not None:
            assert found[-1].state is RolloutState.LIVE, found[-1]
            return
        await asyncio.to_thread(registry.events.wait, seen, 0.5)
    raise AssertionError(f"{promotion.to_version} is not live after {timeout} s")


def test_twenty_swaps_under_clients_that_never_pause_fail_nobody(tmp_path: Path, tiny_llama: Path) -> None:
    registry = open_registry(tmp_path / "podium")
    try:
        asyncio.run(_swap_under_load(registry, tmp_path, tiny_llama))
    finally:
        registry.close()


async def _swap_under_load(registry: StoredRegistry, home: Path, tiny_llama: Path) -> None:
    refs = _publish(registry, home, tiny_llama, adapters=3)
    async with _serving(registry) as lines:
        await _live(registry, registry.promotions.promote(refs[0], "production"), timeout=540)
        endpoint = registry.deployments.replicas("stories")[0].endpoint
        assert endpoint is not None
        known: dict[str, str] = {}
        swapped: list[tuple[float, str]] = [(time.monotonic(), refs[0])]
        async with httpx.AsyncClient(base_url=endpoint, timeout=60, trust_env=False) as http:
            known[refs[0]] = (await ask(http, "teller", PROMPT)).text
            async with Clients(endpoint, "teller", prompt=PROMPT) as clients:
                for swap in range(1, SWAPS + 1):
                    ref = refs[swap % len(refs)]
                    await _live(registry, registry.promotions.promote(ref, "production"))
                    swapped.append((time.monotonic(), ref))
                    answer = await ask(http, "teller", PROMPT)
                    assert answer.version == ref
                    assert known.setdefault(ref, answer.text) == answer.text
        print(f"{len(clients.asked)} answers, {SWAPS} swaps")
        await _heals_after_a_kill(registry, refs[SWAPS % len(refs)], known)
        for line in lines:
            print(line)
    assert len(set(known.values())) == len(refs), "the adapters must answer differently for this to be a test"
    _judge(clients, known, swapped)


async def _heals_after_a_kill(registry: StoredRegistry, ref: str, known: dict[str, str]) -> None:
    """vLLM is killed: what is left of it goes too, and another answers with the version that was live."""
    before = registry.deployments.replicas("stories")[0]
    child = Child(registry.settings.home / "serving" / "stories" / "replica-0")
    assert child.record is not None and child.record.pid is not None and before.endpoint is not None
    others = psutil.Process(child.record.pid).children(recursive=True)
    assert others, "vLLM's engine is a process of its own"
    os.kill(child.record.pid, signal.SIGKILL)

    async def answers_again() -> Asked | None:
        if registry.deployments.replicas("stories")[0].boot in (None, before.boot):
            return None
        async with httpx.AsyncClient(base_url=before.endpoint or "", trust_env=False) as http:
            asked = await ask(http, "teller", PROMPT)
        return asked if asked.status == 200 else None

    asked = await eventually(answers_again, timeout=540, what="it answers again")
    assert asked is not None and (asked.version, asked.text) == (ref, known[ref])
    assert not [process for process in others if process.is_running()]


def _judge(clients: Clients, known: dict[str, str], swapped: list[tuple[float, str]]) -> None:
    bad = [a for a in clients.asked if a.status != 200 or a.error or a.finish != "length"]
    assert not bad, bad[:3]
    for asked in clients.asked:
        assert asked.version is not None
        assert asked.models == {asked.version}
        assert asked.text == known[asked.version]
        # What was live when it was sent, or was made live while it was on its way.
        before = [ref for at, ref in swapped if at <= asked.sent][-1:]
        during = [ref for at, ref in swapped if asked.sent < at]
        assert asked.version in {*before, *during[:2]}, (asked, before, during[:2])
    assert {asked.version for asked in clients.asked} == set(known)
    assert len(clients.asked) >= SWAPS
