"""A refusal is an event of its own, whatever becomes of the transaction that it was said in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from registry.errors import AliasHeld
from registry.events import EventType
from registry.store.stored import StoredRegistry
from registry.values import Origin
from tests.common.content import write_dataset
from tests.common.outbox import open_registry


@pytest.fixture
def held(tmp_path: Path) -> Iterator[StoredRegistry]:
    """A registry on behalf of a trigger, with an alias that triggers may not move."""
    registry = open_registry(tmp_path / "home")
    for number in (1, 2, 3):
        path = write_dataset(tmp_path / str(number), {"data.txt": str(number).encode()})
        registry.catalog.publish("bot", path, "dataset")
    registry.promotions.promote("bot:v1", "live")
    registry.promotions.promote("bot:v2", "live")
    registry.promotions.rollback("bot", "live")
    acting = registry.acting(Origin("trigger:app/name"))
    assert isinstance(acting, StoredRegistry)
    yield acting
    registry.close()


def _refusals(registry: StoredRegistry) -> int:
    return sum(e.type == EventType.PROMOTION_REFUSED for e in registry.events.after(0, limit=1000))


def test_a_refusal_outlives_the_transaction_that_it_undoes(held: StoredRegistry) -> None:
    with pytest.raises(AliasHeld), held.transaction():
        held.catalog.tag("bot:v1", {"seen": "yes"})
        held.promotions.promote("bot:v3", "live")
    assert _refusals(held) == 1
    assert held.catalog.resolve("bot:v1").tags == {}


def test_a_refusal_that_is_caught_is_written_once(held: StoredRegistry) -> None:
    with held.transaction():
        held.catalog.tag("bot:v1", {"seen": "yes"})
        with suppress(AliasHeld):
            held.promotions.promote("bot:v3", "live")
    assert _refusals(held) == 1
    assert held.catalog.resolve("bot:v1").tags == {"seen": "yes"}


def test_a_refusal_outside_of_a_transaction_is_written_once(held: StoredRegistry) -> None:
    with pytest.raises(AliasHeld):
        held.promotions.promote("bot:v3", "live")
    assert _refusals(held) == 1
