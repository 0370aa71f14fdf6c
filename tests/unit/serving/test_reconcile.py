"""The reconcile loop over engines in this process: who leads, what wakes it, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from registry.deployments import RolloutState
from registry.errors import DatabaseUnavailable
from registry.processes import Process
from registry.protocol import Registry
from registry.values import AppObject
from serving.deployment import Deployment
from serving.desiring import Declared
from serving.leadership import Leadership
from serving.parts import Parts
from serving.reconcile import Source, declared_in, run_controllers
from tests.common.loops import eventually
from tests.common.serving import World


@asynccontextmanager
async def controllers(
    world: World, *, source: Source | None = None, leave_running: bool = False
) -> AsyncIterator[list[str]]:
    """The loop, ended at the exit; gives what it reports."""
    stop, lines = asyncio.Event(), list[str]()

    def make_parts(deployment: Deployment, folder: Path) -> Parts:
        return Parts(world.engines, world.front)

    task = asyncio.create_task(
        run_controllers(
            world.registry,
            asyncio.Event(),
            stop,
            lambda name, line: lines.append(f"{name}: {line}"),
            source=source or (lambda: {"router": Declared(world.deployment, world.revision)}),
            folder=world.home / "serving",
            make_parts=make_parts,
            leave_running=leave_running,
        )
    )
    try:
        yield lines
    finally:
        stop.set()
        await task


async def is_live(world: World, generation: int) -> None:
    def ended() -> bool:
        found = world.registry.deployments.of_promotion("ticket-router", "production", generation)
        return bool(found) and found[0].state is RolloutState.LIVE

    await eventually(ended, what=f"generation {generation} is live")


def test_a_promotion_wakes_it_without_nats_or_a_poll(world: World) -> None:
    async def work() -> None:
        async with controllers(world) as lines:
            await is_live(world, world.promote(world.publish(1)))
            await is_live(world, world.promote(world.publish(2)))
            live = world.rollouts()[-1]
            took = (live.ended_at or live.started_at) - live.started_at
            assert took.total_seconds() < 1.5, "it waited for a poll"
            await eventually(lambda: "router: ticket-router = ticket-router:v2 at http://front" in lines)
        assert world.engines[0].app is None, "its engine is stopped at the end"
        assert world.registry.leases.get("controller/router") is None

    asyncio.run(work())


def test_after_the_end_it_is_known_that_nothing_runs(world: World) -> None:
    async def work() -> None:
        async with controllers(world):
            await is_live(world, world.promote(world.publish(1)))
            assert world.registry.deployments.replicas("router")[0].phase == "ready"
        assert {each.phase for each in world.registry.deployments.replicas("router")} == {"absent"}

    asyncio.run(work())


def test_an_engine_that_was_left_running_is_adopted(world: World) -> None:
    async def work() -> None:
        async with controllers(world, leave_running=True):
            await is_live(world, world.promote(world.publish(1)))
        async with controllers(world):
            await is_live(world, world.promote(world.publish(2)))
            assert world.engines[0].starts == 1

    asyncio.run(work())


def test_a_killed_engine_is_healed_without_an_event(world: World) -> None:
    async def work() -> None:
        async with controllers(world):
            await is_live(world, world.promote(world.publish(1)))
            world.engines[0].kill()

            async def answers() -> bool:
                middleware = world.engines[0].middleware
                return (
                    world.engines[0].starts == 2
                    and middleware is not None
                    and middleware.switchboard.map is not None
                )

            await eventually(answers, what="it serves again")
            assert (await world.ask())["version"] == "ticket-router:v1"

    asyncio.run(work())


def test_of_two_controllers_one_leads_and_the_other_takes_over_when_it_resigns(world: World) -> None:
    async def work() -> None:
        async with controllers(world):
            async with controllers(world, leave_running=True) as first:
                await is_live(world, world.promote(world.publish(1)))
            world.said = first
            await is_live(world, world.promote(world.publish(2)))
        assert world.registry.leases.get("controller/router") is None

    asyncio.run(work())


def test_a_declaration_that_is_gone_is_undone(world: World) -> None:
    declared = {"router": Declared(world.deployment, 1)}

    async def work() -> None:
        async with controllers(world, source=lambda: dict(declared)) as lines:
            await is_live(world, world.promote(world.publish(1)))
            declared["router"] = replace(declared["router"], removed=True)

            async def is_gone() -> bool:
                return not world.registry.deployments.active() and world.engines[0].app is None

            await eventually(is_gone, what="the deployment is removed")
            assert any("stop replica 0" in line for line in lines)
            declared["router"] = Declared(world.deployment, 1)  # declared anew, revisions begin anew

            async def is_back() -> bool:
                routes = world.registry.deployments.routes("router").routes
                return "ticket-router" in routes and not world.registry.deployments.open_rollouts("router")

            await eventually(is_back, what="it is deployed again")
            assert (await world.ask())["version"] == "ticket-router:v1"
            assert [r.state for r in world.rollouts()] == [RolloutState.LIVE, RolloutState.LIVE]

    asyncio.run(work())


def test_trouble_with_a_declaration_is_said_and_does_not_end_the_loop(world: World) -> None:
    failures = iter([True, False])

    def source() -> dict[str, Declared]:
        if next(failures, False):
            raise DatabaseUnavailable("broken")
        return {"router": Declared(world.deployment, 1)}

    async def work() -> None:
        async with controllers(world, source=source) as lines:
            await is_live(world, world.promote(world.publish(1)))
            assert any("broken" in line for line in lines)

    asyncio.run(work())


def test_declared_deployments_are_those_of_all_apps(world: World) -> None:
    registry: Registry = world.registry
    body = world.deployment.to_json()
    objects = [AppObject("support", Deployment.deployable, "router", body)]
    registry.apps.apply("support", objects, plan=registry.apps.plan("support", objects))
    found = declared_in(registry)
    assert found == {"router": Declared(world.deployment, 1)}


def test_a_declaration_of_another_podium_is_left_alone_and_said(world: World) -> None:
    registry: Registry = world.registry
    body = {**world.deployment.to_json(), "colour": "red"}
    objects = [AppObject("support", Deployment.deployable, "router", body)]
    registry.apps.apply("support", objects, plan=registry.apps.plan("support", objects))
    lines: list[str] = []
    assert declared_in(registry, lambda name, line: lines.append(line)) == {}
    assert "colour" in lines[0]


def test_a_deployment_with_routes_that_no_app_declares_is_removed(world: World) -> None:
    async def work() -> None:
        world.promote(world.publish(1))
        await world.settle(world.controller())
        assert declared_in(world.registry)["router"].removed

    asyncio.run(work())


class TestLeadership:
    def claim(self, world: World, holder: str, clock: list[float]) -> Leadership:
        return Leadership("router", world.registry, holder=holder, monotonic=lambda: clock[0])

    def test_a_lease_ends_when_no_beat_was_seen_for_its_term(self, world: World) -> None:
        clock = [0.0]
        first, second = self.claim(world, "elsewhere", clock), self.claim(world, "here", clock)
        assert first.try_lead() and not second.try_lead()
        clock[0] += world.registry.settings.lease_seconds - 1
        assert not second.try_lead()
        clock[0] += 1
        assert second.try_lead()
        assert first.lease is not None and second.lease is not None
        assert second.lease.epoch > first.lease.epoch

    def test_a_beat_that_was_seen_begins_the_term_anew(self, world: World) -> None:
        clock = [0.0]
        first, second = self.claim(world, "elsewhere", clock), self.claim(world, "here", clock)
        assert first.try_lead() and not second.try_lead()
        assert first.lease is not None
        world.registry.leases.beat([first.lease])
        clock[0] += world.registry.settings.lease_seconds
        assert not second.try_lead()

    def test_a_dead_process_of_this_machine_is_known_at_once(self, world: World) -> None:
        import json

        gone = replace(Process.current(), started=1.0)
        clock = [0.0]
        assert self.claim(world, json.dumps(gone.to_json()), clock).try_lead()
        assert self.claim(world, "here", clock).try_lead()

    def test_a_lease_that_was_resigned_is_free_at_once(self, world: World) -> None:
        clock = [0.0]
        first, second = self.claim(world, "elsewhere", clock), self.claim(world, "here", clock)
        assert first.try_lead()
        first.resign()
        assert second.try_lead()

    def test_it_beats_until_the_lease_is_lost(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        async def work() -> None:
            leadership = self.claim(world, "here", [0.0])
            leadership._term = 0.01
            assert leadership.try_lead()
            keeping = asyncio.create_task(leadership.keep())

            def beats() -> bool:
                lease = world.registry.leases.get("controller/router")
                return lease is not None and lease.beat >= 3

            await eventually(beats)
            seen = world.registry.leases.get("controller/router")
            while world.registry.leases.acquire("controller/router", "other", seen=seen) is None:
                seen = world.registry.leases.get("controller/router")
            await asyncio.wait_for(keeping, 5)
            assert leadership.lease is None

        asyncio.run(work())


def test_engines_end_here_when_another_machine_has_come_to_lead(world: World) -> None:
    """Nobody would keep them up to date: they must not go on answering with what was live once."""

    async def work() -> None:
        async with controllers(world, leave_running=True):
            await is_live(world, world.promote(world.publish(1)))
        elsewhere = replace(Process.current(), boot="another machine").to_text()
        assert world.registry.leases.acquire("controller/router", elsewhere) is not None
        async with controllers(world) as lines:
            await eventually(lambda: any("another controller leads" in line for line in lines))
            await eventually(lambda: world.engines[0].app is None, what="its engine is stopped")
        assert world.front is not None and not world.front.is_running

    asyncio.run(work())


def test_engines_go_on_while_another_controller_of_this_machine_leads(world: World) -> None:
    async def work() -> None:
        async with controllers(world, leave_running=True):
            await is_live(world, world.promote(world.publish(1)))
        assert world.registry.leases.acquire("controller/router", Process.current().to_text()) is not None
        async with controllers(world, leave_running=True) as lines:
            await eventually(lambda: any("stands by" in line for line in lines))
        assert (await world.ask())["status"] == 200

    asyncio.run(work())
