"""Promotions at the same moment: with one expectation one wins, and the others are told."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import pytest

from registry.errors import AliasMoved, PodiumError, VersionInUse, VersionNotFound
from registry.protocol import Registry
from registry.values import Promotion
from tests.common.registries import Maker, Place

T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[T | PodiumError]:
    """Start the calls in one moment, each in a thread of its own; what they return or raise."""
    barrier = Barrier(len(calls))

    def started(call: Callable[[], T]) -> T | PodiumError:
        barrier.wait(20)
        try:
            return call()
        except PodiumError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(started, calls))


def promote(registry: Registry, number: int, expect: int | None) -> Callable[[], Promotion]:
    return lambda: registry.promotions.promote(f"bot:v{number}", "production", expect=expect)


@pytest.mark.parametrize("first", [None, 1])
def test_of_racing_promotions_with_one_expectation_one_wins(
    place: Place, make: Maker, first: int | None
) -> None:
    for _ in range(4):
        make.adapter("bot")
    registry = make.registry
    if first:
        registry.promotions.promote("bot:v1", "production")
    begun = len(registry.promotions.history("bot"))
    outcomes = at_once(*(promote(place.open(f"user:{n}"), n, first) for n in (2, 3, 4)))
    won = [outcome for outcome in outcomes if isinstance(outcome, Promotion)]
    assert len(won) == 1
    assert [type(o) for o in outcomes if o not in won] == [AliasMoved, AliasMoved]
    assert registry.promotions.get("bot", "production").version == won[0].to_version
    assert len(registry.promotions.history("bot")) == begun + 1


def test_racing_promotions_without_expectation_all_stand_in_one_order(place: Place, make: Maker) -> None:
    for _ in range(4):
        make.adapter("bot")
    registry = make.registry
    openers = [place.open(f"user:{n}") for n in (1, 2, 3, 4)]

    def loop(opened: Registry, number: int) -> Callable[[], int]:
        def run() -> int:
            return sum(
                opened.promotions.promote(f"bot:v{(number + i) % 4 + 1}", "production").changed
                for i in range(5)
            )

        return run

    changed = at_once(*(loop(opened, number) for number, opened in enumerate(openers)))
    assert not [outcome for outcome in changed if isinstance(outcome, PodiumError)]
    history = registry.promotions.history("bot", "production")[::-1]
    assert len(history) == sum(count for count in changed if isinstance(count, int))
    assert [p.generation for p in history] == list(range(1, len(history) + 1))
    assert [p.from_version for p in history[1:]] == [p.to_version for p in history[:-1]]
    events = [event for event in registry.events.after(0, limit=1000) if event.subject == "bot:production"]
    assert [event.id for event in events] == [p.event for p in history]


def test_a_version_is_never_both_deleted_and_live(place: Place, make: Maker) -> None:
    for _ in range(6):
        make.adapter("bot")
    deleting, promoting = place.open("user:del"), place.open("user:pro")
    for number in range(1, 7):
        alias, ref = f"alias-{number}", f"bot:v{number}"

        def promote_it(ref: str = ref, alias: str = alias) -> object:
            return promoting.promotions.promote(ref, alias)

        def delete_it(ref: str = ref) -> object:
            return deleting.catalog.delete(ref)

        outcomes = at_once(promote_it, delete_it)
        refused = [outcome for outcome in outcomes if isinstance(outcome, PodiumError)]
        assert len(refused) == 1
        assert isinstance(refused[0], VersionInUse | VersionNotFound)


def test_racing_pushes_of_one_artifact_each_get_a_number_of_their_own(place: Place, make: Maker) -> None:
    makers = [Maker(place.open(f"user:{n}"), make.scratch / f"{n}") for n in range(4)]
    for number, maker in enumerate(makers):
        maker.made = 100 * number  # other content each
    versions = at_once(*((lambda m=maker: m.adapter("bot").number) for maker in makers))
    assert sorted(v for v in versions if isinstance(v, int)) == [1, 2, 3, 4]


def test_racing_pushes_of_the_same_content_give_one_version(place: Place, make: Maker) -> None:
    makers = [Maker(place.open(f"user:{n}"), make.scratch / f"{n}") for n in range(4)]
    versions = at_once(*((lambda m=maker: m.adapter("bot").ref) for maker in makers))
    assert versions == ["bot:v1"] * 4
    assert len(make.registry.catalog.versions("bot")) == 1
