"""A controller that is killed at any line of a rollout: the next goes on, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from registry.crashpoints import observed_by
from registry.deployments import TERMINAL
from registry.errors import StaleAuthority
from tests.common.serving import World

POINTS = (
    "replica.started",
    "rollout.begun",
    "rollout.staged",
    "rollout.checked",
    "rollout.loaded",
    "rollout.probed",
    "rollout.flipped",
    "rollout.applied",
    "rollout.finished",
    "rollout.failed",
    "rollout.unloaded",
)


class Killed(BaseException):
    """The controller ends here, as by SIGKILL: no handler of an `Exception` sees it."""


@contextmanager
def killed_at(point: str, time: int = 1) -> Iterator[list[str]]:
    """Raise `Killed` at the given occurrence of a point; gives the points that were reached."""
    reached: list[str] = []

    def handler(name: str) -> None:
        reached.append(name)
        if name == point and reached.count(point) == time:
            raise Killed

    with observed_by(handler):
        yield reached


def check_history(world: World) -> None:
    """Every promotion since the deployment began has one rollout and one terminal event."""
    history = world.registry.promotions.history("ticket-router", "production")
    rollouts = world.rollouts()
    assert [r.target.generation for r in rollouts] == sorted(p.generation for p in history)
    assert all(rollout.state in TERMINAL for rollout in rollouts)
    ended = Counter(g for kind, g in world.events() if kind in {state.value for state in TERMINAL})
    assert ended == Counter({p.generation: 1 for p in history})


async def check_serving(world: World) -> None:
    """The name is answered by the version that the alias is at."""
    alias = world.registry.promotions.get("ticket-router", "production")
    answer = await world.ask()
    assert (answer["status"], answer["version"]) == (200, f"ticket-router:v{alias.version}")


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_controller_killed_at_any_point_is_continued_by_the_next(
    world: World, point: str, time: int
) -> None:
    async def work() -> None:
        versions = [world.publish(1), world.publish(2), world.publish(3, rank=64), world.publish(4)]
        with killed_at(point, time) as reached:
            controller = world.controller()
            for version in versions:
                world.promote(version)
                try:
                    await world.settle(controller)
                except Killed:
                    controller = world.controller()
                    await world.settle(controller)
        assert reached.count(point) >= min(time, 1)
        check_history(world)
        await check_serving(world)
        assert world.registry.promotions.get("ticket-router", "production").version == 4

    asyncio.run(work())


def test_a_controller_that_lost_its_lease_writes_nothing(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        old = world.controller()
        await world.settle(old)
        new = world.controller()
        world.promote(world.publish(2))
        before = world.events()
        with pytest.raises(StaleAuthority):
            await world.settle(old)
        assert world.events() == before
        assert (await world.ask())["version"] == "ticket-router:v1"
        await world.settle(new)
        await check_serving(world)

    asyncio.run(work())


@pytest.mark.parametrize("seed", range(25))
def test_any_schedule_of_kills_and_promotions_ends_with_the_alias_served(world: World, seed: int) -> None:
    """Promotions good and bad, rollbacks, controllers, engines killed and frozen, in any order."""

    async def work() -> None:
        draw = random.Random(seed)
        world.promote(world.publish(0))
        controller = world.controller()
        await world.settle(controller)
        for number in range(1, 9):
            disturb(world, draw, number)
            with killed_at(draw.choice(POINTS), draw.randint(1, 3)):
                try:
                    for _ in range(draw.randint(1, 6)):
                        plan = await controller.settle()
                        world.now = max(plan.wake_at, world.now + 0.01)
                except (Killed, StaleAuthority):
                    controller = world.controller()
            if draw.random() < 0.2:
                controller = world.controller()
        await world.settle(controller, rounds=400)
        check_history(world)
        await check_serving(world)

    asyncio.run(work())


def disturb(world: World, draw: random.Random, number: int) -> None:
    engine = world.engines[0]
    match draw.choice(["good", "good", "bad", "rollback", "kill", "freeze", "two"]):
        case "good":
            world.promote(world.publish(number))
        case "two":
            world.promote(world.publish(number))
            world.promote(world.publish(number + 100))
        case "bad":
            fault = draw.choice(["refuse", "die"])
            world.promote(world.publish(number, fake={"load": fault}))
        case "rollback":
            history = world.registry.promotions.history("ticket-router", "production")
            earlier = draw.choice(history).to_version
            world.registry.promotions.promote(f"ticket-router:v{earlier}", "production")
        case "kill":
            engine.kill()
        case "freeze":
            engine.freeze()
