"""Several replicas, another base, other settings: what starts beside what serves, and takes over when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.deployments import RolloutState
from serving.deployment import VLLM
from serving.room import Room
from tests.common.registries import Place
from tests.common.serving import World

GIB = 2**30


@pytest.fixture
def world(tmp_path: Path, sqlite_place: Place) -> World:
    made = World(tmp_path, sqlite_place.open(), replicas=2)
    made.publish_base()
    return made


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def running(world: World) -> list[int]:
    return [index for index, engine in world.engines.items() if engine.app is not None]


async def routed(world: World) -> list[int]:
    assert world.front is not None
    return sorted((await world.front.observe()).routed)


async def everybody(world: World, model: str = "ticket-router") -> set[tuple[int, str | None]]:
    """Status and version of as many answers as there are places."""
    answers = [await world.ask(model) for _ in world.engines]
    return {(answer["status"], answer["version"]) for answer in answers}


def test_every_replica_has_the_version_before_any_answers_with_it(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1))
        await world.settle(controller)
        assert (running(world), await routed(world)) == ([0, 1], [0, 1])
        world.said.clear()
        world.promote(world.publish(2))
        await world.settle(controller)
        assert await everybody(world) == {(200, "ticket-router:v2")}
        flip = next(i for i, line in enumerate(world.said) if line.startswith("flip"))
        probes = [i for i, line in enumerate(world.said) if line.startswith("probe ticket-router:v2")]
        applies = [i for i, line in enumerate(world.said) if line.startswith("apply")]
        assert len(probes) == len(applies) == 2
        assert max(probes) < flip < min(applies)

    run(work)


def test_a_version_that_one_replica_cannot_serve_goes_live_on_none(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1))
        await world.settle(controller)
        app = world.engines[1].app
        assert app is not None
        app.adapters["ticket-router:v2"] = "/elsewhere"  # so that it answers with another one's weights
        world.promote(world.publish(2, fake={"answer": "as-base"}))
        await world.settle(controller)
        assert await everybody(world) == {(200, "ticket-router:v1")}
        assert world.rollouts()[-2].state is RolloutState.FAILED

    run(work)


def test_a_killed_replica_leaves_the_traffic_and_comes_back_with_everything(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1))
        await world.settle(controller)
        world.engines[0].start_looks = 3
        world.engines[0].kill()
        await controller.settle()
        assert await routed(world) == [1]
        assert await everybody(world) == {(200, "ticket-router:v1")}
        world.promote(world.publish(2))
        await world.settle(controller)
        assert await routed(world) == [0, 1]
        assert await everybody(world) == {(200, "ticket-router:v2")}

    run(work)


def test_a_killed_proxy_is_started_again_with_its_routes(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1))
        await world.settle(controller)
        assert world.front is not None
        world.front.kill()
        await world.settle(controller)
        assert world.front.starts == 2
        assert await everybody(world) == {(200, "ticket-router:v1")}

    run(work)


def test_another_base_takes_over_when_all_of_it_is_ready_and_the_old_one_is_drained(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1, base=None))
        await world.settle(controller)
        second = world.publish_base(seed=8)
        world.said.clear()
        await world.settle(controller)
        assert (running(world), await routed(world)) == ([2, 3], [2, 3])
        assert await everybody(world) == {(200, "ticket-router:v1")}
        table = world.registry.deployments.routes("router")
        assert table.base is not None and table.base.ref == second.ref
        order = [line.split()[0] for line in world.said if line.split()[0] in ("switch", "send", "drain")]
        assert order == ["switch", "send", "drain", "drain"]

    run(work)


def test_old_answers_are_finished_before_the_old_base_is_stopped(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1, base=None))
        await world.settle(controller)
        for index in running(world):
            app = world.engines[index].app
            assert app is not None
            app.token_delay = 0.1
        asked = asyncio.create_task(world.ask())
        while not sum((await world.front.observe()).sessions.values()):  # type: ignore[union-attr]
            await asyncio.sleep(0.001)
        world.publish_base(seed=8)
        await controller.settle()
        assert len(running(world)) == 3, "the one that answers goes on"
        answer = await asked
        assert answer["status"] == 200
        await world.settle(controller)
        assert running(world) == [2, 3]

    run(work)


def test_requests_on_their_way_through_the_proxy_are_waited_for(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1, base=None))
        await world.settle(controller)
        assert world.front is not None
        world.front.hold = asyncio.Event()
        asked = asyncio.create_task(world.ask())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        world.publish_base(seed=8)
        plan = await controller.settle()
        assert any("still on their way" in line for line in plan.waiting)
        assert world.registry.deployments.open_rollouts("router"), "it is not live before"
        world.front.hold.set()
        assert (await asked)["status"] == 200
        await world.settle(controller)
        assert running(world) == [2, 3]

    run(work)


def test_a_base_that_does_not_start_never_takes_traffic(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1, base=None))
        await world.settle(controller)
        world.engines[2].fails_to_start = world.engines[3].fails_to_start = True
        world.publish_base(seed=8)
        await world.settle(controller, rounds=100)
        assert (running(world), await routed(world)) == ([0, 1], [0, 1])
        assert await everybody(world) == {(200, "ticket-router:v1")}
        assert world.registry.promotions.get("tiny", "production").version == 1
        (failed,) = [r for r in world.registry.deployments.rollouts("router") if r.state == "failed"]
        assert "it failed to start" in failed.reason

    run(work)


def test_what_does_not_fit_into_memory_stops_nothing_unless_that_is_allowed(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        world.promote(world.publish(1, base=None))
        await world.settle(controller)
        world.room = Room(free=3 * GIB, each=2 * GIB)
        second = world.publish_base(seed=8)
        await world.settle(controller)
        assert running(world) == [0, 1]
        (failed,) = [r for r in world.registry.deployments.rollouts("router") if r.state == "failed"]
        assert "2 more of about 2.0 GiB, and 3.0 GiB is free" in failed.reason
        assert "Nothing was stopped" in failed.reason
        assert world.registry.promotions.get("tiny", "production").version == 1
        world.deployment, world.revision = replace(world.deployment, allow_downtime=True), 2
        controller = world.controller()
        await world.settle(controller)
        world.registry.promotions.promote(second.ref, "production")
        world.said.clear()
        await world.settle(controller)
        assert [line for line in world.said if "makes way for tiny:v2" in line]
        assert len(running(world)) == 2
        assert await everybody(world) == {(200, "ticket-router:v1")}

    run(work)


def test_replicas_that_do_not_fit_are_not_started_and_that_is_said(world: World) -> None:
    async def work() -> None:
        world.room = Room(free=1 * GIB, each=2 * GIB)
        world.promote(world.publish(1))
        controller = world.controller()
        for _ in range(3):
            plan = await controller.settle()
            world.now += 1
        assert running(world) == [0]
        assert any("1 of 2 replicas must wait" in line for line in plan.waiting)
        assert (await world.ask())["status"] == 200
        world.room = Room(free=4 * GIB, each=2 * GIB)
        await world.settle(controller)
        assert running(world) == [0, 1]

    run(work)


def test_other_settings_come_up_beside_the_old_ones(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        await world.settle(world.controller())
        world.deployment, world.revision = replace(world.deployment, engine=VLLM(max_loras=4)), 2
        await world.settle(world.controller())
        assert (running(world), await routed(world)) == ([2, 3], [2, 3])
        assert await everybody(world) == {(200, "ticket-router:v1")}

    run(work)


def test_settings_that_do_not_start_leave_the_old_ones_and_every_alias_where_they_are(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        await world.settle(world.controller())
        world.engines[2].fails_to_start = world.engines[3].fails_to_start = True
        world.deployment, world.revision = replace(world.deployment, engine=VLLM(max_loras=4)), 2
        controller = world.controller()
        for _ in range(60):
            plan = await controller.settle()
            world.now = max(plan.wake_at, world.now + 0.01)
        assert (running(world), await routed(world)) == ([0, 1], [0, 1])
        assert await everybody(world) == {(200, "ticket-router:v1")}
        assert world.registry.promotions.get("tiny", "production").version == 1
        world.promote(world.publish(2))
        for _ in range(10):
            plan = await controller.settle()
            world.now = max(plan.wake_at, world.now + 0.01)
        assert await everybody(world) == {(200, "ticket-router:v2")}

    run(work)


def test_a_restart_replaces_one_after_the_other_where_there_is_no_room_beside(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        await world.settle(world.controller())
        world.room = Room(free=0, each=2 * GIB)
        controller = world.controller()
        world.registry.operations.restart("router")
        world.said.clear()
        for _ in range(60):
            plan = await controller.settle()
            assert await everybody(world) == {(200, "ticket-router:v1")}
            world.now = max(plan.wake_at, world.now + 0.01)
        sent = [line for line in world.said if line.startswith("send requests")]
        assert sent and not [line for line in sent if "nobody" in line], "one serves at every moment"
        assert any("," not in line for line in sent), "one is taken out at a time"
        assert len(running(world)) == 2
        assert sum(engine.starts for engine in world.engines.values()) == 4

    run(work)


def test_a_base_and_an_adapter_that_fits_only_it_go_live_together(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        await world.settle(world.controller())
        second = world.publish_base(seed=8, promote=False)
        adapter = world.publish(2, base=second.ref)
        with world.registry.transaction():
            world.registry.promotions.promote(second.ref, "production")
            world.promote(adapter)
        await world.settle(world.controller())
        assert await everybody(world) == {(200, "ticket-router:v2")}
        assert running(world) == [2, 3]
        assert [r.state for r in world.rollouts()] == [RolloutState.LIVE, RolloutState.LIVE]

    run(work)


def test_an_adapter_is_rolled_back_while_another_base_is_starting(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1, base=None))
        controller = world.controller()
        await world.settle(controller)
        world.promote(world.publish(2, base=None))
        await world.settle(controller)
        world.engines[2].start_looks = world.engines[3].start_looks = 1000
        world.publish_base(seed=8)
        await controller.settle()
        assert len(running(world)) == 4
        world.registry.promotions.rollback("ticket-router", "production")
        await controller.settle()
        assert await everybody(world) == {(200, "ticket-router:v1")}
        assert world.rollouts()[-1].state is RolloutState.LIVE

    run(work)


def test_without_a_proxy_one_replica_is_asked_directly(world: World) -> None:
    async def work() -> None:
        world.without_front()
        world.deployment = replace(world.deployment, replicas=1)
        world.promote(world.publish(1, base=None))
        controller = world.controller()
        await world.settle(controller)
        assert (await world.ask())["version"] == "ticket-router:v1"
        world.publish_base(seed=8)
        await world.settle(controller)
        (failed,) = [r for r in world.registry.deployments.rollouts("router") if r.state == "failed"]
        assert "HAProxy" in failed.reason
        assert (await world.ask())["status"] == 200
        assert world.engines[0].starts == 1

    run(work)
