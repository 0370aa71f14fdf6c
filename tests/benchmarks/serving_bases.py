"""Another base beside a bare start of vLLM with it: what takes over cannot be there sooner than that."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from registry import Settings
from registry.store.stored import StoredRegistry
from serving.child import Child
from serving.engine import Launch, Phase
from serving.haproxy import find_haproxy
from serving.vllm_engine import VLLMEngine
from tests.benchmarks.measuring import Aim, Row, compare
from tests.common import models
from tests.common.stories import SETTINGS, live, publish_stories, serving_stories, write_other_base

_ROUNDS = 2
_START_SECONDS = 540


def another_base() -> Iterator[Row]:
    """From `promote` of a base to live, its adapter loaded and probed, beside a bare start of vLLM."""
    if find_haproxy() is None:
        return
    base = models.kept("tiny-llama")
    with TemporaryDirectory(prefix="podium-bench-") as scratch:
        folder = Path(scratch)
        bare = [asyncio.run(_start(folder / f"bare-{number}", base)) for number in range(_ROUNDS)]
        registry = StoredRegistry.open(Settings(home=folder / "home", actor="bench"))
        try:
            ours = asyncio.run(_move(registry, folder, base))
        finally:
            registry.close()
    figures = statistics.median(ours), statistics.median(bare)
    yield compare("another base, promote to live", *figures, "s", Aim.AT_MOST, 1.3)


async def _start(folder: Path, base: Path) -> float:
    """Seconds from the start of a process until it answers."""
    engine = VLLMEngine(folder, SETTINGS)
    begin = time.monotonic()
    await engine.start(Launch("tiny:v1", base, "bare"))
    try:
        while (await engine.observe()).phase is not Phase.READY:
            assert time.monotonic() - begin < _START_SECONDS, Child(folder).last_words()
            await asyncio.sleep(0.1)
        return time.monotonic() - begin
    finally:
        await engine.stop(10)
        await engine.close()


async def _move(registry: StoredRegistry, folder: Path, base: Path) -> list[float]:
    (ref,) = publish_stories(registry, folder, base, 1, of_any_base=True)
    seconds = []
    async with serving_stories(registry):
        await live(registry, registry.promotions.promote(ref, "production"), timeout=_START_SECONDS)
        for number in range(_ROUNDS):
            other = write_other_base(folder / f"other-{number}", base, layer=number)
            version = registry.catalog.publish("tiny", other, "model").version
            begin = time.monotonic()
            await live(
                registry, registry.promotions.promote(version.ref, "production"), timeout=_START_SECONDS
            )
            seconds.append(time.monotonic() - begin)
    return seconds
