"""Leases: one holder at a time, taken over only from one who has not beaten, and fenced by epoch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from registry.errors import StaleAuthority
from registry.protocol import Registry
from registry.runs import RunRequest
from registry.values import AppObject, Lease, Origin
from tests.common.registries import Maker, Place


def acquired(registry: Registry, holder: str = "first", *, seen: Lease | None = None) -> Lease:
    lease = registry.leases.acquire("work", holder, seen=seen)
    assert lease is not None
    return lease


def test_a_free_lease_is_taken_and_a_held_one_is_not(registry: Registry) -> None:
    assert acquired(registry) == Lease("work", "first", epoch=1, beat=0)
    assert registry.leases.acquire("work", "second") is None
    assert registry.leases.get("work") == Lease("work", "first", epoch=1, beat=0)


def test_each_holder_gets_a_higher_epoch(registry: Registry) -> None:
    registry.leases.release(acquired(registry))
    assert registry.leases.get("work") is None
    assert acquired(registry, "second").epoch == 2


def test_a_beat_keeps_a_lease_from_being_taken_over(registry: Registry) -> None:
    seen = acquired(registry)
    (beaten,) = registry.leases.beat([seen])
    assert beaten.beat == 1
    assert registry.leases.acquire("work", "second", seen=seen) is None
    assert acquired(registry, "second", seen=beaten).epoch == 2


def test_whoever_lost_a_lease_can_neither_beat_nor_free_it(registry: Registry) -> None:
    old = acquired(registry)
    new = acquired(registry, "second", seen=old)
    assert registry.leases.beat([old]) == []
    registry.leases.release(old)
    assert registry.leases.get("work") == new


def test_of_several_leases_those_still_held_come_back(registry: Registry) -> None:
    held = registry.leases.acquire("b", "me")
    lost = registry.leases.acquire("a", "me")
    assert held is not None
    assert lost is not None
    registry.leases.acquire("a", "other", seen=lost)
    assert [lease.name for lease in registry.leases.beat([held, lost])] == ["b"]


def test_leases_are_found_by_prefix_and_free_ones_are_not(registry: Registry) -> None:
    for name in ("run/1", "run/2", "runner", "relay"):
        registry.leases.acquire(name, "me")
    released = registry.leases.get("run/2")
    assert released is not None
    registry.leases.release(released)
    assert [lease.name for lease in registry.leases.held("run/")] == ["run/1"]


def test_of_many_who_take_a_lease_over_at_once_one_gets_it(place: Place) -> None:
    seen = acquired(place.open())
    openers = [place.open(f"user:{number}") for number in range(4)]
    barrier = Barrier(4)

    def take(opened: Registry) -> Lease | None:
        barrier.wait(20)
        return opened.leases.acquire("work", opened.origin.actor, seen=seen)

    with ThreadPoolExecutor(4) as pool:
        won = [lease for lease in pool.map(take, openers) if lease is not None]
    assert [lease.epoch for lease in won] == [2]


WRITES: dict[str, Callable[[Registry, Path], object]] = {
    "publish": lambda acting, path: Maker(acting, path / "late").adapter("bot"),
    "store": lambda acting, path: acting.catalog.store(path / "data", "dataset"),
    "promote": lambda acting, _: acting.promotions.promote("bot:v2", "production"),
    "rollback": lambda acting, _: acting.promotions.rollback("bot", "candidate"),
    "revert": lambda acting, _: acting.promotions.revert("bot", "candidate", failed_generation=2, reason="x"),
    "release": lambda acting, _: acting.promotions.release("bot", "candidate"),
    "tag": lambda acting, _: acting.catalog.tag("bot:v1", {"late": "yes"}),
    "delete": lambda acting, _: acting.catalog.delete("bot:v3"),
    "apply": lambda acting, _: acting.apps.apply("app", (), plan=acting.apps.plan("app", ())),
    "queue": lambda acting, _: acting.runs.queue(RunRequest("sft")),
    "transaction": lambda acting, _: acting.transaction().__enter__(),
    "begin_incarnation": lambda acting, _: acting.events.begin_incarnation(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("how", ["taken over", "released"])
def test_no_write_of_a_holder_who_lost_its_lease_counts(
    registry: Registry, make: Maker, tmp_path: Path, write: str, how: str
) -> None:
    for _ in range(3):
        make.adapter("bot")
    for number in (1, 2):
        registry.promotions.promote(f"bot:v{number}", "candidate")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("late")
    app = [AppObject("app", "trigger", "t", {"on": "nothing"})]
    registry.apps.apply("app", app, plan=registry.apps.plan("app", app))
    lease = acquired(registry)
    acting = registry.acting(Origin("run:1", lease.authority))
    if how == "taken over":
        acquired(registry, "second", seen=lease)
    else:
        registry.leases.release(lease)
    before = state(registry)
    with pytest.raises(StaleAuthority, match=r"'work' \(epoch 1\)"):
        WRITES[write](acting, tmp_path)
    assert state(registry) == before


def state(registry: Registry) -> object:
    return (
        registry.events.position(),
        [registry.catalog.versions(artifact.name) for artifact in registry.catalog.artifacts()],
        registry.promotions.aliases("bot"),
        registry.apps.objects(),
        registry.runs.list(),
    )


def test_the_holder_writes_as_long_as_it_holds(registry: Registry, make: Maker) -> None:
    make.adapter("bot")
    acting = registry.acting(Origin("run:1", acquired(registry).authority))
    assert acting.promotions.promote("bot:v1", "production").actor == "run:1"


def test_a_lease_cannot_be_taken_over_in_the_middle_of_its_holders_write(place: Place, make: Maker) -> None:
    """The epoch that was checked stands until the commit: the taker waits, and then finds the write done."""
    make.adapter("bot")
    registry, other = make.registry, place.open("user:bob")
    lease = acquired(registry)
    acting = registry.acting(Origin("run:1", lease.authority))
    with ThreadPoolExecutor(1) as pool:
        with acting.transaction():
            acting.promotions.promote("bot:v1", "production")
            taking = pool.submit(other.leases.acquire, "work", "second", seen=lease)
            with pytest.raises(TimeoutError):
                taking.result(0.2)
        taken = taking.result(30)
    assert taken is not None
    assert other.promotions.get("bot", "production").version == 1
