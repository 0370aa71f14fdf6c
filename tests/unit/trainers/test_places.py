"""Places of steps: the same in each execution, in whatever order things end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from registry.errors import InvalidInput
from trainers.gathering import gather_map
from trainers.places import current_branch, follow_branches


def places(pipeline: Callable[[Callable[[str], Awaitable[None]]], Awaitable[object]], seed: int) -> set[str]:
    """The places at which a pipeline asks for steps, each of which ends after a while of chance."""
    asked: list[str] = []
    chance = random.Random(seed)

    async def step(label: str) -> None:
        place = current_branch().step(label.partition(":")[0])
        asked.append(f"{place} {label}")
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        follow_branches(runner.get_loop())
        runner.run(pipeline(step))  # type: ignore[arg-type]
    assert len(asked) == len(set(asked))
    return set(asked)


async def arms(step: Callable[[str], Awaitable[None]]) -> None:
    await step("prepare")

    async def arm(number: int) -> None:
        await step(f"train:{number}")
        await asyncio.gather(step(f"evaluate:{number}"), step(f"judge:{number}"))

    await gather_map(arm, range(4), concurrency=2)
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(arm(number + 10))
    await step("prepare")


def test_places_do_not_depend_on_what_ends_first() -> None:
    first = places(arms, 0)
    assert len(first) == 2 + 7 * 3
    assert all(places(arms, seed) == first for seed in range(1, 8))
    assert {"/prepare#1 prepare", "/prepare#2 prepare"} <= first
    assert {"map0[3]/train#1 train:3", "arm[2]/train#1 train:12"} <= first


def test_tasks_on_the_side_do_not_change_the_numbers_of_others() -> None:
    async def with_side(step: Callable[[str], Awaitable[None]]) -> None:
        async def side() -> None: ...

        async def arm(number: int) -> None:
            await step(f"train:{number}")

        for number in range(3):
            for _ in range(random.randrange(3)):
                await asyncio.create_task(side())
            await asyncio.create_task(arm(number))

    assert places(with_side, 0) == {f"arm[{n}]/train#1 train:{n}" for n in range(3)}


def run(coroutine: Awaitable[object]) -> object:
    return asyncio.run(coroutine)  # type: ignore[arg-type]


def test_gather_map_keeps_order_and_failures_and_its_bound() -> None:
    going, most = 0, 0

    async def task(number: int, factor: int = 1) -> int:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0)
        going -= 1
        if number == 2:
            raise ValueError("two")
        return number * factor

    found = run(gather_map(task, [{"number": 1, "factor": 5}, (2,), 3, (4, 2), 5], concurrency=2))
    assert isinstance(found, list)
    assert str(found.pop(1)) == "two"
    assert (found, most) == ([5, 3, 8, 5], 2)
    assert run(gather_map(task, [])) == []
    with pytest.raises(InvalidInput):
        run(gather_map(task, [1], concurrency=0))


def test_gather_map_cancels_what_is_left_when_it_is_told_to() -> None:
    ended: list[str] = []

    async def task(number: int) -> None:
        try:
            if number == 1:
                raise ValueError("one")
            await asyncio.Event().wait()
        finally:
            ended.append(str(number))

    with pytest.raises(ValueError, match="one"):
        run(gather_map(task, range(3), cancel_on_error=True))
    assert sorted(ended) == ["0", "1", "2"]


def test_gather_map_that_is_cancelled_cancels_its_calls() -> None:
    ended: list[int] = []

    async def task(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await gather_map(task, range(3), concurrency=2)

    run(main())
    assert ended == [0, 1]
