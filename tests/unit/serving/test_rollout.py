"""A whole rollout over a real registry and the fake engine: what each kind of promotion ends in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from registry.deployments import RolloutState
from registry.values import Version
from tests.common.serving import World


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_promoted_adapter_becomes_live_and_answers_under_its_version(world: World) -> None:
    async def work() -> None:
        generation = world.promote(world.publish(1))
        await world.settle(world.controller())
        answer = await world.ask()
        assert (answer["status"], answer["version"], answer["model"]) == (
            200,
            "ticket-router:v1",
            "ticket-router:v1",
        )
        assert world.events() == [("started", generation), ("live", generation)]

    run(work)


def test_the_second_promotion_moves_the_name_and_keeps_the_first_for_a_rollback(world: World) -> None:
    async def work() -> None:
        first, second = world.publish(1), world.publish(2)
        world.promote(first)
        controller = world.controller()
        await world.settle(controller)
        before = await world.ask()
        world.promote(second)
        await world.settle(controller)
        after = await world.ask()
        assert after["version"] == "ticket-router:v2"
        assert after["choices"] != before["choices"]
        assert (await world.ask("ticket-router:v1"))["choices"] == before["choices"]
        world.said.clear()
        world.registry.promotions.rollback("ticket-router", "production")
        await world.settle(controller)
        assert (await world.ask())["choices"] == before["choices"]
        assert not [line for line in world.said if line.startswith(("load", "probe", "stage"))]

    run(work)


def test_the_version_before_the_last_two_is_unloaded_and_its_files_go(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        versions = [world.publish(seed) for seed in (1, 2, 3)]
        for version in versions:
            world.promote(version)
            await world.settle(controller)
        assert (await world.ask("ticket-router:v1"))["status"] == 404
        assert (await world.ask("ticket-router:v2"))["status"] == 200
        staged = {path.name for path in (world.home / "files").iterdir()}
        assert versions[0].digest.removeprefix("sha256:") not in staged
        assert versions[1].digest.removeprefix("sha256:") in staged

    run(work)


BAD: dict[str, dict[str, Any]] = {
    "rank": {"rank": 64},
    "dora": {"config": {"use_dora": True}},
    "wrong prefix": {"prefix": "base_model.model.transformer"},
    "wrong shapes": {"width": 24},
    "another base": {"base": None},
    "another tokenizer": {"files": {"tokenizer.json": '{"model": {"vocab": {"b": 0}}}'}},
    "another template": {"files": {"chat_template.jinja": "{{ messages }}"}},
    "refused by the engine": {"fake": {"load": "refuse"}},
    "takes the engine down": {"fake": {"load": "die"}},
    "answers like the base": {"fake": {"answer": "as-base"}},
    "does not answer": {"fake": {"answer": "nothing"}},
}


@pytest.mark.parametrize("fault", sorted(BAD))
def test_a_bad_version_leaves_the_route_and_gives_the_alias_back(world: World, fault: str) -> None:
    async def work() -> None:
        good = world.publish(1)
        world.promote(good)
        controller = world.controller()
        await world.settle(controller)
        bad = _publish_bad(world, fault)
        failed = world.promote(bad)
        await world.settle(controller)
        assert (await world.ask())["version"] == good.ref
        assert world.registry.promotions.get("ticket-router", "production").version == good.number
        assert world.events()[-5:] == [
            ("started", failed),
            ("failed", failed),
            ("reverted", failed),
            ("started", failed + 1),
            ("live", failed + 1),
        ]
        assert world.rollouts()[-2].reason
        better = world.publish(9)
        world.promote(better)
        await world.settle(controller)
        assert (await world.ask())["version"] == better.ref

    run(work)


def _publish_bad(world: World, fault: str) -> Version:
    if fault == "another base":
        other = world.publish_base(seed=7, promote=False)
        return world.publish(2, base=other.ref)
    return world.publish(2, **BAD[fault])


def test_a_certain_failure_blocks_the_content_and_an_uncertain_one_does_not(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        controller = world.controller()
        await world.settle(controller)
        certain, uncertain = world.publish(2, rank=64), world.publish(3, fake={"load": "refuse"})
        for version in (certain, uncertain, certain):
            world.promote(version)
            await world.settle(controller)
        blocks = world.registry.deployments.blocks("router")
        assert [block.digest for block in blocks] == [certain.digest]
        assert "blocked" in [r for r in world.rollouts() if r.state is RolloutState.FAILED][-1].reason

    run(work)


def test_promotions_that_nobody_saw_end_as_superseded(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        generations = [world.promote(world.publish(1))]
        await world.settle(controller)
        generations += [world.promote(world.publish(seed)) for seed in (2, 3, 4)]
        await world.settle(controller)
        assert sorted(e for e in world.events() if e[0] in ("live", "superseded", "failed")) == [
            ("live", generations[0]),
            ("live", generations[3]),
            ("superseded", generations[1]),
            ("superseded", generations[2]),
        ]

    run(work)


def test_a_killed_engine_comes_back_with_its_versions_and_routes(world: World) -> None:
    async def work() -> None:
        for seed in (1, 2):
            world.promote(world.publish(seed))
        controller = world.controller()
        await world.settle(controller)
        world.engines[0].kill()
        await world.settle(controller)
        assert (await world.ask())["version"] == "ticket-router:v2"
        assert world.engines[0].starts == 2

    run(work)


def test_a_new_controller_adopts_what_runs_and_fences_the_old_one(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        old = world.controller()
        await world.settle(old)
        new = world.controller()
        await world.settle(new)
        assert world.engines[0].starts == 1
        middleware = world.engines[0].middleware
        assert middleware is not None and middleware.switchboard.map is not None
        assert middleware.switchboard.map.fence.epoch == world.epoch

    run(work)


def test_an_alias_that_does_not_exist_yet_is_waited_for(world: World) -> None:
    async def work() -> None:
        controller = world.controller()
        plan = await controller.settle()
        assert any("does not exist yet" in line for line in plan.needed)
        assert not plan.waiting  # a person has to act first: nothing is in progress
        assert (await world.ask())["status"] == 404
        world.promote(world.publish(1))
        await world.settle(controller)
        assert (await world.ask())["status"] == 200

    run(work)


def test_a_base_that_an_adapter_does_not_fit_is_refused_and_its_alias_returned(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        controller = world.controller()
        await world.settle(controller)
        world.publish_base(seed=8)
        await world.settle(controller)
        assert world.registry.promotions.get("tiny", "production").version == 1
        assert world.engines[0].starts == 1
        assert (await world.ask())["status"] == 200

    run(work)


def test_a_new_base_that_everything_fits_is_started_and_serves(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1, base=None))  # nobody recorded what it was trained on
        controller = world.controller()
        await world.settle(controller)
        second = world.publish_base(seed=8)
        await world.settle(controller)
        assert [engine.starts for engine in world.engines.values()] == [1, 1]
        assert world.engines[0].app is None, "the old process is stopped"
        table = world.registry.deployments.routes("router")
        assert table.base is not None and table.base.ref == second.ref
        assert (await world.ask())["version"] == "ticket-router:v1"

    run(work)
