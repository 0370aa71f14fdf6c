"""What several facets write inside one block is true together or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.errors import AliasMoved, AliasNotFound, ArtifactNotFound
from registry.protocol import Registry
from tests.common.registries import Maker, Place


def test_all_writes_of_a_block_become_true_at_its_end(place: Place, registry: Registry, make: Maker) -> None:
    make.adapter("bot")
    other = place.open("user:bob")
    with registry.transaction():
        registry.promotions.promote("bot:v1", "production")
        registry.catalog.tag("bot:v1", {"stage": "live"})
        with pytest.raises(AliasNotFound):
            other.promotions.get("bot", "production")
        assert registry.promotions.get("bot", "production").version == 1
    assert other.catalog.resolve("bot:production").tags == {"stage": "live"}


def test_a_block_that_raises_writes_nothing(registry: Registry, make: Maker) -> None:
    make.adapter("bot")
    newest = registry.events.position().newest
    with pytest.raises(AliasMoved), registry.transaction():
        registry.promotions.promote("bot:v1", "candidate")
        registry.promotions.promote("bot:v1", "production", expect=7)
    assert registry.promotions.aliases("bot") == []
    assert registry.events.position().newest == newest


def test_blocks_inside_blocks_belong_to_the_outermost(registry: Registry, make: Maker) -> None:
    make.adapter("bot")
    with pytest.raises(RuntimeError), registry.transaction():
        with registry.transaction():
            registry.promotions.promote("bot:v1", "production")
        raise RuntimeError
    with pytest.raises(AliasNotFound):
        registry.promotions.get("bot", "production")


def test_another_thread_is_not_part_of_the_block(registry: Registry, make: Maker) -> None:
    with ThreadPoolExecutor(1) as pool, registry.transaction(), pytest.raises(ArtifactNotFound):
        pool.submit(registry.catalog.resolve, "bot:v1").result(30)


def test_after_an_error_the_registry_goes_on(registry: Registry, make: Maker) -> None:
    for _ in range(40):  # more than connections: none may stay behind in a broken transaction
        with pytest.raises(ArtifactNotFound), registry.transaction():
            registry.promotions.promote("nobody:v1", "production")
    assert make.adapter("bot").number == 1
