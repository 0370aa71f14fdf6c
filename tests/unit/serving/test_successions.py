"""What comes while something else is under way: each row of the table in docs/rollouts.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from registry.crashpoints import observed_by
from registry.deployments import BASE, Block, Rollout, RolloutState
from registry.errors import VersionInUse
from registry.values import Version
from serving.controller import Controller
from serving.deployment import VLLM
from serving.desiring import Declared
from serving.engine import Phase
from tests.common.registries import Place
from tests.common.serving import World

UNDECIDED = ("rollout.begun", "rollout.staged", "rollout.checked", "rollout.loaded", "rollout.probed")
DECIDED = ("rollout.flipped", "rollout.applied")

before_the_decision = pytest.mark.parametrize("point", UNDECIDED)
after_the_decision = pytest.mark.parametrize("point", DECIDED)


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]


@contextmanager
def at(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something the first time that a controller comes to a point."""
    done: list[str] = []

    def handler(name: str) -> None:
        if name == point and not done:
            done.append(name)
            act()

    with observed_by(handler):
        yield
    assert done, f"it never came to {point}"


async def live(world: World, version: Version) -> Controller:
    """Bring a version live, and give back the controller that did."""
    world.promote(version)
    controller = world.controller()
    await world.settle(controller)
    assert await answering(world) == version.ref
    return controller


async def answering(world: World) -> str | None:
    answer = await world.ask()
    assert answer["status"] == 200, answer
    return answer["version"]


def outcomes(world: World) -> list[tuple[int, str]]:
    """(version, how its rollout ended) of the adapter, oldest first; each ended once."""
    ended = [generation for kind, generation in world.events() if kind in ("live", "failed", "superseded")]
    assert len(ended) == len(set(ended)), "a promotion ended twice"
    return [(rollout.target.version, rollout.state.value) for rollout in world.rollouts()]


def roll_back(world: World) -> None:
    world.registry.promotions.rollback("ticket-router", "production")


@before_the_decision
def test_a_promotion_before_the_route_is_decided_takes_the_place_of_the_one_under_way(
    world: World, point: str
) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        second, third = world.publish(2), world.publish(3)
        with at(point, lambda: world.promote(third)):
            world.promote(second)
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "superseded"), (3, "live")]
        assert await answering(world) == third.ref
        assert (await world.ask(second.ref))["status"] == 404

    run(work)


@after_the_decision
def test_a_promotion_after_the_route_is_decided_waits_until_it_is_live(world: World, point: str) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        second, third = world.publish(2), world.publish(3)
        with at(point, lambda: world.promote(third)):
            world.promote(second)
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "live"), (3, "live")]
        assert await answering(world) == third.ref

    run(work)


def test_promotions_that_nobody_looked_at_are_superseded_by_the_newest(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        for seed in range(2, 6):
            world.promote(world.publish(seed))
        await world.settle(controller)
        assert outcomes(world) == [
            (1, "live"),
            *[(number, "superseded") for number in (2, 3, 4)],
            (5, "live"),
        ]

    run(work)


def test_a_promotion_to_what_is_live_changes_nothing(world: World) -> None:
    async def work() -> None:
        first = world.publish(1)
        controller = await live(world, first)
        before = world.events()
        assert not world.registry.promotions.promote(first.ref, "production").changed
        await world.settle(controller)
        assert world.events() == before

    run(work)


@before_the_decision
def test_a_rollback_before_the_route_is_decided_leaves_the_old_version_answering(
    world: World, point: str
) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        second = world.publish(2)
        with at(point, lambda: roll_back(world)):
            world.promote(second)
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "superseded"), (1, "live")]
        route = world.registry.deployments.routes("router").routes["ticket-router"]
        assert (route.current.ref, route.previous) == ("ticket-router:v1", None), "the new one had a route"

    run(work)


@after_the_decision
def test_a_rollback_after_the_route_is_decided_is_one_flip_back(world: World, point: str) -> None:
    async def work() -> None:
        first = world.publish(1)
        controller = await live(world, first)
        world.said.clear()
        with at(point, lambda: roll_back(world)):
            world.promote(world.publish(2))
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "live"), (1, "live")]
        assert not any(line.startswith(f"load {first.ref}") for line in world.said)
        assert await answering(world) == first.ref

    run(work)


def test_a_rollback_of_what_is_live_is_one_flip_without_a_load(world: World) -> None:
    async def work() -> None:
        first = world.publish(1)
        controller = await live(world, first)
        world.promote(world.publish(2))
        await world.settle(controller)
        world.said.clear()
        roll_back(world)
        await world.settle(controller)
        assert await answering(world) == first.ref
        assert not any(line.startswith(("load", "probe", "start")) for line in world.said), world.said

    run(work)


def test_a_rollback_after_a_failure_goes_back_from_what_is_live(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        for version in (world.publish(2), world.publish(3, rank=64)):
            world.promote(version)
            await world.settle(controller)
        assert await answering(world) == "ticket-router:v2"
        roll_back(world)
        await world.settle(controller)
        assert await answering(world) == "ticket-router:v1"

    run(work)


def test_a_paused_deployment_begins_nothing_until_it_is_resumed(world: World) -> None:
    async def work() -> None:
        first = world.publish(1)
        controller = await live(world, first)
        world.registry.operations.pause("router", "release week")
        world.promote(world.publish(2))
        world.promote(world.publish(3))
        await world.settle(controller)
        assert outcomes(world) == [(1, "live")]
        assert await answering(world) == first.ref
        world.registry.operations.resume("router")
        await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "superseded"), (3, "live")]

    run(work)


@before_the_decision
def test_a_pause_before_the_route_is_decided_stops_it_there_and_a_resume_goes_on(
    world: World, point: str
) -> None:
    async def work() -> None:
        first, second = world.publish(1), world.publish(2)
        controller = await live(world, first)
        with at(point, lambda: world.registry.operations.pause("router")):
            world.promote(second)
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "started")]
        assert await answering(world) == first.ref
        world.registry.operations.resume("router")
        await world.settle(world.controller())
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert await answering(world) == second.ref

    run(work)


@after_the_decision
def test_a_pause_after_the_route_is_decided_lets_it_become_live(world: World, point: str) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        second = world.publish(2)
        with at(point, lambda: world.registry.operations.pause("router")):
            world.promote(second)
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert await answering(world) == second.ref

    run(work)


def test_a_paused_deployment_heals_what_serves(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        world.registry.operations.pause("router")
        world.promote(world.publish(2))
        serving = next(engine for engine in world.engines.values() if engine.app is not None)
        starts = serving.starts
        serving.kill()
        await world.settle(controller)
        assert await answering(world) == "ticket-router:v1"
        assert sum(engine.starts for engine in world.engines.values()) == starts + 1

    run(work)


def test_a_restart_replaces_every_process_and_what_is_under_way_goes_on(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        boots = await running(world)
        with at("rollout.staged", lambda: world.registry.operations.restart("router")):
            world.promote(world.publish(2))
            await world.settle(controller, rounds=100)
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert await answering(world) == "ticket-router:v2"
        after = await running(world)
        assert len(after) == len(boots) and not after & boots

    run(work)


def test_a_restart_while_paused_waits_for_the_resume(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        boots = await running(world)
        world.registry.operations.pause("router")
        world.registry.operations.restart("router")
        await world.settle(controller)
        assert await running(world) == boots
        world.registry.operations.resume("router")
        await world.settle(controller, rounds=100)
        assert not await running(world) & boots

    run(work)


async def running(world: World) -> set[str | None]:
    """Boots of the processes that run."""
    seen = [await engine.observe() for engine in world.engines.values()]
    return {each.boot for each in seen if each.phase is not Phase.ABSENT}


def test_a_version_that_is_routed_to_kept_or_under_way_is_not_deleted(
    world: World, sqlite_place: Place
) -> None:
    impatient = sqlite_place.open(rollback_window=0)  # the history of aliases protects nothing

    def refuse(version: Version) -> None:
        with pytest.raises(VersionInUse):
            impatient.catalog.delete(version.ref)

    async def work() -> None:
        first, second, third = world.publish(1), world.publish(2), world.publish(3)
        controller = await live(world, first)
        world.promote(second)
        await world.settle(controller)
        refuse(first)
        refuse(second)

        def move_on() -> None:
            world.registry.promotions.promote(first.ref, "production")
            refuse(third)

        with at("rollout.loaded", move_on):
            world.promote(third)
            await world.settle(controller)
        assert outcomes(world)[-2:] == [(3, "superseded"), (1, "live")]
        impatient.catalog.delete(third.ref)

    run(work)


def test_a_version_that_nothing_needs_any_more_is_deleted_and_its_files_are_gone(
    world: World, sqlite_place: Place
) -> None:
    async def work() -> None:
        first = world.publish(1)
        controller = await live(world, first)
        for seed in (2, 3):
            world.promote(world.publish(seed))
            await world.settle(controller)
        sqlite_place.open(rollback_window=0).catalog.delete(first.ref)
        digest = first.digest.removeprefix("sha256:")
        assert not [path for path in (world.home / "files").iterdir() if digest in path.name]

    run(work)


@pytest.mark.parametrize("point", (*UNDECIDED, *DECIDED))
def test_a_base_that_is_promoted_while_an_adapter_rolls_goes_live_too(world: World, point: str) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1, base=None))
        base = world.publish_base(2, promote=False)
        second = world.publish(2, base=None)
        with at(point, lambda: world.registry.promotions.promote(base.ref, "production")):
            world.promote(second)
            await world.settle(controller, rounds=200)
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert world.registry.deployments.routes("router").routes[BASE].current.ref == base.ref
        assert await answering(world) == second.ref

    run(work)


@pytest.mark.parametrize("point", ["rollout.checked", "replica.started", "rollout.loaded", "rollout.flipped"])
def test_an_adapter_that_is_promoted_while_a_base_rolls_goes_live_too(world: World, point: str) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1, base=None))
        second, base = world.publish(2, base=None), world.publish_base(2, promote=False)
        with at(point, lambda: world.promote(second)):
            world.registry.promotions.promote(base.ref, "production")
            await world.settle(controller, rounds=200)
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert world.registry.deployments.routes("router").routes[BASE].current.ref == base.ref
        assert await answering(world) == second.ref

    run(work)


@pytest.mark.parametrize("point", (*UNDECIDED, *DECIDED))
def test_a_deployment_that_is_removed_while_it_rolls_ends_all_of_it(world: World, point: str) -> None:
    class Removed(Exception):
        pass

    def remove() -> None:
        raise Removed

    async def work() -> None:
        controller = await live(world, world.publish(1))
        with at(point, remove):
            world.promote(world.publish(2))
            with pytest.raises(Removed):
                await world.settle(controller)
        ending = world.controller()
        ending.declared = Declared(world.deployment, 0, removed=True)
        await world.settle(ending)
        assert outcomes(world) == [(1, "live"), (2, "superseded")]
        assert await running(world) == set()
        assert world.registry.deployments.active() == []

    run(work)


def test_a_name_that_is_no_longer_served_ends_its_rollout_and_loses_its_route(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        world.promote(world.publish(2))
        world.registry.operations.pause("router")
        with at("rollout.loaded", lambda: world.registry.operations.pause("router")):
            world.registry.operations.resume("router")
            await world.settle(controller)
        world.registry.operations.resume("router")
        world.deployment, world.revision = replace(world.deployment, serves={}), 2
        await world.settle(world.controller())
        assert outcomes(world)[-1] == (2, "superseded")
        assert (await world.ask())["status"] == 404

    run(work)


@pytest.mark.parametrize("point", [point for point in (*UNDECIDED, *DECIDED) if point != "rollout.loaded"])
def test_a_replica_that_dies_while_a_version_rolls_comes_back_and_takes_it(world: World, point: str) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        second = world.publish(2)
        serving = next(engine for engine in world.engines.values() if engine.app is not None)
        with at(point, serving.kill):
            world.promote(second)
            await world.settle(controller, rounds=200)
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert await answering(world) == second.ref

    run(work)


def test_a_replica_that_dies_while_a_version_is_tried_on_it_lays_that_to_the_version(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        second = world.publish(2)
        serving = next(engine for engine in world.engines.values() if engine.app is not None)
        with at("rollout.loaded", serving.kill):
            world.promote(second)
            await world.settle(controller, rounds=200)
        assert outcomes(world) == [(1, "live"), (2, "failed"), (1, "live")]
        assert await answering(world) == "ticket-router:v1"
        assert world.registry.deployments.blocks("router") == [], "nobody knows that it was the version"
        world.promote(second)
        await world.settle(controller)
        assert await answering(world) == second.ref

    run(work)


def test_a_version_that_is_unblocked_is_tried_again_where_it_is_still_asked_for(world: World) -> None:
    async def work() -> None:
        first = world.publish(1)
        base = world.registry.catalog.resolve("tiny:production")
        engine = world.deployment.engine.fingerprint()
        block = Block("router", first.digest, base.digest, engine, "a mistake", datetime.now(UTC))
        world.registry.deployments.block(block)
        world.promote(first)
        controller = world.controller()
        await world.settle(controller)
        assert outcomes(world) == [(1, "failed")]
        world.registry.operations.unblock("router", first.digest)
        await world.settle(controller)
        assert [rollout.state for rollout in world.rollouts()] == [RolloutState.FAILED, RolloutState.LIVE]
        assert await answering(world) == first.ref

    run(work)


def test_a_restart_tries_again_what_failed_without_being_blocked(world: World) -> None:
    async def work() -> list[Rollout]:
        world.promote(world.publish(1, fake={"answer": "nothing"}))
        controller = world.controller()
        await world.settle(controller)
        assert [rollout.state for rollout in world.rollouts()] == [RolloutState.FAILED]
        world.registry.operations.restart("router")
        await world.settle(controller, rounds=100)
        return world.rollouts()

    assert [rollout.state for rollout in asyncio.run(work())] == [RolloutState.FAILED, RolloutState.FAILED]


def test_a_key_that_is_added_or_revoked_while_a_version_rolls_holds_when_it_is_live(world: World) -> None:
    async def work() -> None:
        controller = await live(world, world.publish(1))
        made = world.registry.client_keys.add("router")
        with at("rollout.loaded", lambda: world.registry.client_keys.revoke("router", made.key.id)):
            world.promote(world.publish(2))
            await world.settle(controller)
        assert outcomes(world) == [(1, "live"), (2, "live")]
        assert (await world.ask())["status"] == 401
        world.registry.client_keys.open("router")
        await world.settle(controller)
        assert await answering(world) == "ticket-router:v2"

    run(work)


def test_a_version_that_one_of_two_deployments_cannot_serve_goes_live_in_neither(world: World) -> None:
    async def work() -> None:
        narrow = World(world.home / "narrow", world.registry)
        narrow.deployment = replace(world.deployment, name="narrow", engine=VLLM(max_lora_rank=8))
        controllers = [world.controller(), narrow.controller()]

        async def settle() -> None:
            for _ in range(3):  # each sees what the other has made of the alias
                await world.settle(controllers[0])
                await narrow.settle(controllers[1])

        first, second, third = world.publish(1), world.publish(2, rank=16), world.publish(3)
        world.promote(first)
        await settle()
        generation = world.promote(second)
        await settle()
        assert (await answering(world), await answering(narrow)) == (first.ref, first.ref)
        ended = world.registry.deployments.of_promotion("ticket-router", "production", generation)
        assert {r.target.deployment: r.state.value for r in ended} == {"router": "live", "narrow": "failed"}
        assert world.registry.promotions.get("ticket-router", "production").version == first.number
        world.promote(third)
        await settle()
        assert (await answering(world), await answering(narrow)) == (third.ref, third.ref)

    run(work)
