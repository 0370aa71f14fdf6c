"""Versions that cannot be served, one after the other, through the whole path: real processes and clients.

Each leaves the route where it was, gives the alias back, says why in its event, and stands in nobody's way.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.deployments import RolloutState
from registry.errors import InvalidContent
from registry.protocol import Registry
from registry.values import Version
from tests.common.clients import Clients
from tests.common.registries import Place
from tests.common.serving import World, write_lora
from tests.common.waiting import wait_until
from tests.integration.test_serving_processes import Controllers, address, ended

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Publish = Callable[[World, int], Version]


def made(**changes: Any) -> Publish:
    return lambda world, seed: world.publish(seed, **changes)


def on_another_base(world: World, seed: int) -> Version:
    return world.publish(seed, base=world.publish_base(seed=70 + seed, promote=False).ref)


def damaged(damage: Callable[[Path], None]) -> Publish:
    """A version that was whole when it was published, and whose weights in the store are not any more."""

    def publish(world: World, seed: int) -> Version:
        version = world.publish(seed)
        manifest = world.registry.catalog.manifest(version.digest)
        (weights,) = [file for file in manifest.files if file.path.endswith(".safetensors")]
        # The first chunk is the header, which other versions share.
        (stored,) = (world.registry.settings.home / "blobs").rglob(weights.chunks[-1].key)
        stored.chmod(0o600)
        damage(stored)
        return version

    return publish


def _flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


#: What is wrong -> (how it is made, what the reason says, whether its content is blocked).
BAD: dict[str, tuple[Publish, str, bool]] = {
    "rank too high": (made(rank=64), r"rank.* 64", True),
    "DoRA": (made(config={"use_dora": True}), "DoRA", True),
    "biases": (made(config={"bias": "all"}), "bias", True),
    "an init that changed its base": (made(config={"init_lora_weights": "pissa"}), "pissa", True),
    "whole modules": (made(config={"modules_to_save": ["lm_head"]}), "lm_head", True),
    "no LoRA": (made(config={"peft_type": "IA3"}), "IA3", True),
    "wrong prefix": (made(prefix="base_model.model.transformer"), "transformer", True),
    "wrong shapes": (made(width=24), "24", True),
    "another base": (on_another_base, "base", True),
    "another tokenizer": (
        made(files={"tokenizer.json": '{"model": {"vocab": {"b": 0}}}'}),
        "tokenizer",
        True,
    ),
    "another chat template": (made(files={"chat_template.jinja": "{{ messages }}"}), "template", True),
    "answers like its base": (made(fake={"answer": "as-base"}), "answers exactly as its base", True),
    "does not answer": (made(fake={"answer": "nothing"}), "does not answer with tokens", False),
    "refused by the engine": (made(fake={"load": "refuse"}), "did not load", False),
    "missing in the store": (damaged(lambda file: file.unlink()), "is not in the store", False),
    "truncated in the store": (damaged(lambda file: os.truncate(file, 100)), "does not have its", False),
    "damaged in the store": (damaged(_flip_a_bit), "is damaged", False),
}


@pytest.fixture
def world(tmp_path: Path, sqlite_place: Place) -> World:
    world = World(tmp_path, sqlite_place.open())
    world.publish_base()
    return world


@pytest.fixture
def controllers(sqlite_place: Place, tmp_path: Path) -> Iterator[Controllers]:
    controllers = Controllers(sqlite_place, sqlite_place.settings.home, tmp_path)
    yield controllers
    controllers.end()
    controllers.kill_all()


def test_no_bad_version_takes_a_request_from_the_good_one_or_the_way_from_the_next(
    world: World, controllers: Controllers
) -> None:
    controllers.start()
    good = world.publish(1)
    promote(world, controllers, good)
    asyncio.run(_one_after_the_other(world, controllers, good))


async def _one_after_the_other(world: World, controllers: Controllers, good: Version) -> None:
    may_answer = {good.ref}
    async with Clients(address(world), "ticket-router", count=4) as clients:
        for seed, (what, (publish, words, is_blocked)) in enumerate(BAD.items(), start=100):
            bad = publish(world, seed)
            await asyncio.to_thread(check_refused, world, controllers, bad, good, what, words, is_blocked)
        good = world.publish(2)  # nobody helps: no unblock, no restart
        await asyncio.to_thread(promote, world, controllers, good)
        may_answer.add(good.ref)
    failed = [asked for asked in clients.asked if asked.status != 200 or asked.error]
    assert not failed, failed[:3]
    assert {asked.version for asked in clients.asked} == may_answer


def test_a_version_that_takes_the_engine_down_is_put_back_and_the_next_goes_live(
    world: World, controllers: Controllers
) -> None:
    controllers.start()
    good = world.publish(1)
    promote(world, controllers, good)
    bad = world.publish(2, fake={"load": "die"})
    check_refused(world, controllers, bad, good, "takes the engine down", "", False)
    promote(world, controllers, world.publish(3))


def promote(world: World, controllers: Controllers, version: Version) -> None:
    """Promote a version and see it become live."""
    generation = world.promote(version)
    wait_until(lambda: ended(world, generation), 60, controllers.log)
    (rollout,) = of_promotion(world.registry, generation)
    assert rollout.state is RolloutState.LIVE, rollout.reason
    assert routed(world) == version.ref


def check_refused(
    world: World,
    controllers: Controllers,
    bad: Version,
    good: Version,
    what: str,
    words: str,
    is_blocked: bool,
) -> None:
    generation = world.promote(bad)
    wait_until(lambda: ended(world, generation + 1), 90, lambda: f"{what}: {controllers.log()}")
    (rollout,) = of_promotion(world.registry, generation)
    assert rollout.state is RolloutState.FAILED, what
    assert re.search(words, rollout.reason, re.IGNORECASE), f"{what}: {rollout.reason}"
    assert routed(world) == good.ref, what
    alias = world.registry.promotions.get("ticket-router", "production")
    assert (alias.version, alias.generation) == (good.number, generation + 1), what
    last = [(kind, number) for kind, number in world.events() if number >= generation]
    assert last == [
        ("started", generation),
        ("failed", generation),
        ("reverted", generation),
        ("started", generation + 1),
        ("live", generation + 1),
    ], what
    told = [e for e in world.registry.events.after(0, limit=1000) if e.type == "podium.rollout.failed"][-1]
    assert told.data["reason"] == rollout.reason and told.data["version"] == bad.number
    blocked = {block.digest for block in world.registry.deployments.blocks("router")}
    assert (bad.digest in blocked) is is_blocked, what
    (moved, *_) = world.registry.promotions.history("ticket-router", "production")
    assert (moved.actor, moved.action.value) == ("system:serving", "revert"), what


def of_promotion(registry: Registry, generation: int) -> list[Any]:
    return list(registry.deployments.of_promotion("ticket-router", "production", generation))


def routed(world: World) -> str:
    return world.registry.deployments.routes("router").routes["ticket-router"].current.ref


@pytest.mark.parametrize("fault", ["truncated", "no weights", "no config", "a pickle"])
def test_files_that_are_not_whole_never_become_a_version(world: World, fault: str) -> None:
    folder = write_lora(world.home / "adapter", 5)
    weights = folder / "adapter_model.safetensors"
    match fault:
        case "truncated":
            os.truncate(weights, weights.stat().st_size - 10)
        case "no weights":
            weights.unlink()
        case "no config":
            (folder / "adapter_config.json").unlink()
        case "a pickle":
            (folder / "adapter_model.bin").write_bytes(b"\x80\x04K\x01.")
    before = world.registry.events.position().newest
    with pytest.raises(InvalidContent):
        world.registry.catalog.publish("ticket-router", folder, "adapter")
    assert world.registry.events.position().newest == before
