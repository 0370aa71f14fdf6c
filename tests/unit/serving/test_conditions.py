"""Conditions of a deployment, and when they are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from registry.deployments import (
    BASE,
    Condition,
    ConditionType,
    Loaded,
    ReplicaStatus,
    Rollout,
    RolloutState,
    Route,
    RouteTable,
    Target,
)
from serving.conditions import conditions
from serving.engine import Observation, Phase
from serving.front import FrontView
from serving.metrics import REGISTRY
from serving.recording import Recorder
from serving.state import Desired, Observed, Plan, route_map
from tests.common.serving import World

BASE_TARGET = Target("router", 1, BASE, "tiny", "production", 1, 1, "sha256:base")
BOT = Target("router", 1, "bot", "bot", "production", 1, 1, "sha256:bot")
TABLE = RouteTable(
    2,
    {
        BASE: Route(BASE, Loaded("tiny:v1", "sha256:base"), 1, "r0"),
        "bot": Route("bot", Loaded("bot:v1", "sha256:bot"), 1, "r1"),
    },
)
IDLE = Plan((), 0.0)
DESIRED = Desired("router", BASE_TARGET, {"bot": BOT}, "engine")


def observed(**changes: Any) -> Observed:
    return Observed(**{"table": TABLE, "open": {}, "latest": {}, "replicas": {}, **changes})


def ready(table: RouteTable = TABLE) -> Observation:
    return Observation(Phase.READY, boot="b", map=route_map(table, observed(table=table).fence))


def rollout(state: RolloutState, reason: str = "") -> Rollout:
    return Rollout("r", replace(BOT, version=2), state, datetime.now(UTC), None, reason)


def held(desired: Desired, seen: Observed, plan: Plan = IDLE) -> Mapping[ConditionType, str]:
    """Reasons of the conditions that hold, and of availability and freshness where they do not."""
    positive = (ConditionType.AVAILABLE, ConditionType.UP_TO_DATE)
    return {c.type: c.reason for c in conditions(desired, seen, plan) if c.holds is not (c.type in positive)}


def test_where_all_is_as_it_should_be_nothing_is_to_be_said() -> None:
    assert held(DESIRED, observed(replicas={0: ready()})) == {}


@pytest.mark.parametrize(
    ("desired", "seen", "plan", "type", "words"),
    [
        (DESIRED, observed(table=RouteTable()), None, ConditionType.AVAILABLE, "nothing has been live yet"),
        (DESIRED, observed(), None, ConditionType.AVAILABLE, "no replica answers: there is none"),
        (
            DESIRED,
            observed(replicas={0: Observation(Phase.DEAD)}),
            None,
            ConditionType.AVAILABLE,
            "replica 0 is dead",
        ),
        (
            DESIRED,
            observed(replicas={0: ready(RouteTable(1, {BASE: TABLE.routes[BASE]}))}),
            None,
            ConditionType.AVAILABLE,
            "no replica answers bot",
        ),
        (
            DESIRED,
            observed(replicas={0: ready()}, front=FrontView(is_running=False, detail="it was killed")),
            None,
            ConditionType.AVAILABLE,
            "the proxy sends requests to nobody: it was killed",
        ),
        (
            replace(DESIRED, replicas=2),
            observed(replicas={0: ready(), 1: Observation(Phase.STARTING)}),
            None,
            ConditionType.UP_TO_DATE,
            "1 of 2 replicas",
        ),
        (
            DESIRED,
            observed(replicas={0: ready()}, open={"bot": rollout(RolloutState.STARTED)}),
            Plan((), 0.0, ("replica 0: it is starting",)),
            ConditionType.PROGRESSING,
            "bot:v2 is started; replica 0: it is starting",
        ),
        (
            replace(DESIRED, paused=True),
            observed(replicas={0: ready()}),
            None,
            ConditionType.PAUSED,
            "",
        ),
        (
            DESIRED,
            observed(replicas={0: ready()}, latest={"bot": rollout(RolloutState.FAILED, "rank too high")}),
            None,
            ConditionType.FAILED,
            "bot:v2: rank too high",
        ),
    ],
)
def test_what_is_not_as_it_should_be_is_said_with_its_reason(
    desired: Desired, seen: Observed, plan: Plan | None, type: ConditionType, words: str
) -> None:
    found = held(desired, seen, plan or IDLE)
    assert words in found[type]


def test_what_matters_is_written_at_once_and_what_flickers_seldom(world: World) -> None:
    deployments, now = world.registry.deployments, [100.0]
    recorder = Recorder(world.registry, "router", lambda: now[0])
    replica = ReplicaStatus("router", 0, "ready", boot="b")
    waiting = Condition(ConditionType.PROGRESSING, True, "1 answer is running")

    def writes(status: ReplicaStatus, condition: Condition | None) -> bool:
        before = deployments.replicas("router")
        recorder.record([status], None if condition is None else [condition])
        return deployments.replicas("router") != before

    assert writes(replica, waiting)
    assert not writes(replica, waiting)
    assert not writes(replace(replica, in_flight={"bot:v1": 1}), replace(waiting, reason="2 answers"))
    now[0] += 3
    assert writes(replace(replica, in_flight={"bot:v1": 1}), replace(waiting, reason="2 answers"))
    assert deployments.conditions("router")[0].reason == "2 answers"
    assert writes(replace(replica, phase="dead"), waiting)
    assert writes(replace(replica, phase="dead"), replace(waiting, holds=False))
    assert not writes(replace(replica, phase="dead", models=("bot:v1",)), None)
    assert writes(replace(replica, phase="starting"), None)
    assert not deployments.conditions("router")[0].holds


def test_a_controller_writes_its_conditions_down_and_counts_its_swaps(world: World) -> None:
    def value(metric: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(metric, {"deployment": "router", **labels}) or 0

    async def work() -> None:
        before = {name: value("podium_swaps_total", outcome=name) for name in ("live", "failed")}
        phases = ("stage", "check", "load", "probe", "flip")
        counts = {p: value("podium_swap_seconds_count", phase=p) for p in phases}
        ranks = value("podium_swap_failures_total", step="check", reason="rank")
        world.promote(world.publish(1))
        await world.settle(world.controller())
        world.promote(world.publish(2, rank=64))
        await world.settle(world.controller())
        held = {c.type.value: c for c in world.registry.deployments.conditions("router")}
        assert {name for name, c in held.items() if c.holds} == {"available", "up-to-date"}
        (replica, *_) = world.registry.deployments.replicas("router")
        assert (replica.phase, replica.in_flight) == ("ready", {})
        assert value("podium_swaps_total", outcome="live") >= before["live"] + 2
        assert value("podium_swaps_total", outcome="failed") == before["failed"] + 1
        assert all(value("podium_swap_seconds_count", phase=p) > counts[p] for p in phases)
        assert value("podium_swap_failures_total", step="check", reason="rank") == ranks + 1

    asyncio.run(work())
