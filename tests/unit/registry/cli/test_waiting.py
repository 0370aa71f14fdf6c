"""`podium promote --wait live`: what is waited for, and what is said where there is nothing to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from registry.cli import waiting
from registry.deployments import RolloutState, Target
from registry.processes import Process
from registry.protocol import Registry
from registry.values import AppObject
from tests.common.registries import Maker
from tests.common.waiting import wait_until
from tests.unit.registry.cli.conftest import Podium, Result

LONG = 30.0  # seconds: a command that takes so long has waited for nothing

Deploy = Callable[..., None]


@pytest.fixture
def deploy(registry: Registry) -> Deploy:
    def deploy(**changes: Any) -> None:
        body = {"base": "tiny:v1", "serves": {"bot": "bot:production"}, "paused": False, **changes}
        objects = [AppObject("app", "deployment", "router", body)]
        registry.apps.apply("app", objects, plan=registry.apps.plan("app", objects))

    return deploy


def promote(podium: Podium, *arguments: object) -> tuple[Result, float]:
    begin = time.monotonic()
    done = podium("promote", "bot:v1", "production", "--wait", "live", *arguments)
    return done, time.monotonic() - begin


def roll_out(registry: Registry, state: RolloutState, *, generation: int = 1, revision: int = 1) -> None:
    version = registry.catalog.resolve("bot:v1")
    target = Target("router", revision, "bot", "bot", "production", generation, 1, version.digest)
    rollout = registry.deployments.begin(target)
    if state is RolloutState.LIVE:
        registry.deployments.flip(rollout.id)
    if state is not RolloutState.STARTED:
        registry.deployments.finish(rollout.id, state, "" if state is RolloutState.LIVE else "rank too high")


def test_where_nothing_follows_the_alias_it_says_so_at_once(podium: Podium, bot: Maker) -> None:
    done, seconds = promote(podium)
    assert done.status == 0 and seconds < LONG
    assert "No deployment follows bot:production" in done.stderr
    assert "bot:production: none -> v1" in done.stdout


def test_where_nothing_follows_the_alias_json_has_no_rollouts(podium: Podium, bot: Maker) -> None:
    done, _ = promote(podium, "--json")
    assert (done.status, done.json["rollouts"]) == (0, [])


def test_a_deployment_of_another_alias_is_not_waited_for(podium: Podium, bot: Maker, deploy: Deploy) -> None:
    deploy(serves={"bot": "bot:candidate"})
    done, seconds = promote(podium)
    assert done.status == 0 and seconds < LONG


def test_it_returns_when_the_deployment_says_that_it_is_live(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry
) -> None:
    deploy()

    def serve() -> None:
        wait_until(lambda: registry.promotions.aliases("bot") != [], 10, "no alias")
        roll_out(registry, RolloutState.LIVE)

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        done, _ = promote(podium, "--timeout", LONG)
        serving.result()
    assert done.status == 0
    assert "bot:v1 is live in 'router' after" in done.stderr
    assert f"Nobody serves router now. Start 'podium up': it is waited for, {LONG:g} s at most" in done.stderr


def test_what_is_live_already_is_said_to_be(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry
) -> None:
    deploy()
    registry.promotions.promote("bot:v1", "production")
    roll_out(registry, RolloutState.LIVE)
    done, seconds = promote(podium)
    assert done.status == 0 and seconds < LONG
    assert "bot:v1 is live in 'router' already." in done.stderr


def test_a_rollout_that_failed_is_refused_with_its_reason(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry
) -> None:
    deploy()
    registry.promotions.promote("bot:v1", "production")
    roll_out(registry, RolloutState.FAILED)
    done, _ = promote(podium)
    assert done.status == 1 and "rank too high" in done.stderr


def test_of_several_tries_the_newest_counts(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry
) -> None:
    deploy()
    registry.promotions.promote("bot:v1", "production")
    roll_out(registry, RolloutState.FAILED, revision=1)
    roll_out(registry, RolloutState.LIVE, revision=2)
    done, _ = promote(podium)
    assert done.status == 0


@pytest.mark.parametrize("how", ["by hand", "declared"])
def test_a_paused_deployment_is_not_waited_for(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry, how: str
) -> None:
    deploy(paused=how == "declared")
    if how == "by hand":
        registry.operations.pause("router")
    done, seconds = promote(podium)
    assert done.status == 3 and seconds < LONG
    assert "router is paused" in done.stderr
    assert ("deployments resume router" in done.stderr) is (how == "by hand")
    assert registry.promotions.get("bot", "production").version == 1


def test_what_does_not_become_live_in_time_is_said_with_where_to_look(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry
) -> None:
    deploy()
    registry.promotions.promote("bot:v1", "production")
    roll_out(registry, RolloutState.STARTED)
    registry.leases.acquire("controller/router", Process.current().to_text())
    done, _ = promote(podium, "--timeout", 0.1)
    assert done.status == 3
    assert "Waiting for router to answer with bot:v1." in done.stderr
    assert "is not live in router after 0.1 s; the rollout goes on." in done.stderr
    assert "podium deployments show router" in done.stderr


def test_what_nobody_serves_is_not_waited_for_without_an_end(
    podium: Podium, bot: Maker, deploy: Deploy, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "UNLED_SECONDS", 0.1)
    deploy()
    done, seconds = promote(podium)
    assert (done.status, seconds < LONG) == (3, True)
    assert "nobody serves router, so it is not live there after 0.1 s" in done.stderr
    assert "Start 'podium up'" in done.stderr
