"""A real vLLM under clients that never pause: what a swap must not do to anybody.

``PODIUM_SWAPS=30`` makes more swaps than an everyday run does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from registry.store.stored import StoredRegistry
from serving.child import Child
from serving.haproxy import find_haproxy
from tests.common.clients import Asked, Clients, ask
from tests.common.loops import eventually
from tests.common.outbox import open_registry
from tests.common.stories import (
    NAME,
    PROMPT,
    SERVED,
    Story,
    address,
    describe,
    faults,
    live,
    publish_stories,
    serving_stories,
    write_other_base,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

SWAPS = int(os.environ.get("PODIUM_SWAPS", "20"))
CLIENTS = 40
# Forty leave a second engine on two cores little: its start takes minutes.
CLIENTS_OF_A_BASE = CLIENTS if SWAPS >= 30 else 6
ADAPTERS = 3
needs_proxy = pytest.mark.skipif(find_haproxy() is None, reason="HAProxy is not installed")


@pytest.fixture
def stories(tmp_path: Path) -> Iterator[StoredRegistry]:
    registry = open_registry(tmp_path / "podium")
    yield registry
    registry.close()


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=needs_proxy)])
def test_swaps_under_forty_clients_fail_nobody(
    stories: StoredRegistry, tmp_path: Path, tiny_llama: Path, replicas: int
) -> None:
    refs = publish_stories(stories, tmp_path, tiny_llama, ADAPTERS)
    asyncio.run(_swap_under_load(stories, refs, replicas))


async def _swap_under_load(registry: StoredRegistry, refs: list[str], replicas: int) -> None:
    story = Story()
    async with serving_stories(registry, replicas=replicas) as lines:
        await live(registry, registry.promotions.promote(refs[0], "production"), timeout=540)
        endpoint = address(registry)
        begin = time.monotonic()
        async with httpx.AsyncClient(base_url=endpoint, timeout=120, trust_env=False) as http:
            await story.tell(http, refs[0])
            async with Clients(endpoint, SERVED, prompt=PROMPT, count=CLIENTS) as clients:
                for swap in range(1, SWAPS + 1):
                    ref = refs[swap % len(refs)]
                    await live(registry, registry.promotions.promote(ref, "production"))
                    await story.tell(http, ref)
        took = time.monotonic() - begin
        print(f"{replicas} replicas: {len(clients.asked)} answers, {SWAPS} swaps in {took:.0f} s")
        if replicas == 1:
            await _heals_after_a_kill(registry, endpoint, story)
        print("\n".join(lines))
    _judge(clients, story)
    assert address(registry) == endpoint


def _judge(clients: Clients, story: Story) -> None:
    found = faults(clients.asked, story)
    assert not found, describe(found)
    every = [text for texts in story.known.values() for text in texts]
    assert len(set(every)) == len(every), "versions must answer differently for this to be a test"
    assert {asked.version for asked in clients.asked} == set(story.known)


async def _heals_after_a_kill(registry: StoredRegistry, endpoint: str, story: Story) -> None:
    """vLLM is killed: what is left of it goes too, and another answers with the version that was live."""
    before = registry.deployments.replicas(NAME)[0]
    child = Child(registry.settings.home / "serving" / NAME / f"replica-{before.index}")
    assert child.record is not None and child.record.pid is not None
    others = psutil.Process(child.record.pid).children(recursive=True)
    assert others, "vLLM's engine is a process of its own"
    os.kill(child.record.pid, signal.SIGKILL)

    async def answers_again() -> Asked | None:
        if registry.deployments.replicas(NAME)[0].boot in (None, before.boot):
            return None
        async with httpx.AsyncClient(base_url=endpoint, trust_env=False) as http:
            asked = await ask(http, SERVED, PROMPT)
        return asked if asked.status == 200 else None

    asked = await eventually(answers_again, timeout=540, what="it answers again")
    _, ref = story.moves[-1]
    assert asked is not None and asked.version == ref and asked.text in story.known[ref]
    assert not [process for process in others if process.is_running()]


@needs_proxy
def test_another_base_takes_over_under_clients_and_fails_nobody(
    stories: StoredRegistry, tmp_path: Path, tiny_llama: Path
) -> None:
    refs = publish_stories(stories, tmp_path, tiny_llama, 1, of_any_base=True)
    other = write_other_base(tmp_path / "other", tiny_llama)
    asyncio.run(_move_base_under_load(stories, refs[0], other))


async def _move_base_under_load(registry: StoredRegistry, ref: str, other: Path) -> None:
    story = Story()
    async with serving_stories(registry) as lines:
        begin = time.monotonic()
        await live(registry, registry.promotions.promote(ref, "production"), timeout=540)
        bare = time.monotonic() - begin
        endpoint = address(registry)
        async with httpx.AsyncClient(base_url=endpoint, timeout=120, trust_env=False) as http:
            first = await story.tell(http, ref)
            async with Clients(endpoint, SERVED, prompt=PROMPT, count=CLIENTS_OF_A_BASE) as clients:
                version = registry.catalog.publish("tiny", other, "model").version
                begin = time.monotonic()
                await live(registry, registry.promotions.promote(version.ref, "production"), timeout=540)
                moved = time.monotonic()
                second = await story.tell(http, ref)
                await asyncio.sleep(2)  # for answers of the new base alone
        print(f"{len(clients.asked)} answers; first start {bare:.0f} s, under load {moved - begin:.0f} s")
        print("\n".join(lines))
    assert first.text != second.text, "the bases must answer differently for this to be a test"
    found = faults(clients.asked, story)
    assert not found, describe(found)
    late = [a for a in clients.asked if a.sent > moved and a.text != second.text]
    assert not late, late[:3]
    assert {a.text for a in clients.asked} == {first.text, second.text}
    assert address(registry) == endpoint
