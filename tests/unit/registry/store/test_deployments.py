"""Rollouts, routes and blocks: what becomes true together, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from registry.deployments import (
    BASE,
    Block,
    Condition,
    ConditionType,
    Loaded,
    ReplicaStatus,
    RolloutState,
    Target,
)
from registry.errors import Refused, StaleAuthority, VersionInUse
from registry.protocol import Registry
from registry.values import AppObject, Origin, Version
from tests.common.registries import Maker


def target_of(version: Version, generation: int, *, served: str = "bot", revision: int = 1) -> Target:
    return Target(
        deployment="router",
        revision=revision,
        served=served,
        artifact=version.artifact,
        alias="production",
        generation=generation,
        version=version.number,
        digest=version.digest,
    )


def promoted(registry: Registry, version: Version, **changes: str | int) -> Target:
    generation = registry.promotions.promote(version.ref, "production").generation
    return replace(target_of(version, generation), **changes)


def rollout_events(registry: Registry) -> list[tuple[str, int]]:
    return [
        (event.type.removeprefix("podium.rollout."), event.data["version"])
        for event in registry.events.after(0, limit=500)
        if event.type.startswith("podium.rollout.")
    ]


def test_a_rollout_goes_from_started_over_flipped_to_live_with_its_events(
    registry: Registry, make: Maker
) -> None:
    rollout = registry.deployments.begin(promoted(registry, make.adapter()))
    assert rollout.state is RolloutState.STARTED
    route = registry.deployments.flip(rollout.id)
    ended = registry.deployments.finish(rollout.id, RolloutState.LIVE)
    assert ended.state is RolloutState.LIVE and ended.ended_at is not None
    assert rollout_events(registry) == [("started", 1), ("live", 1)]
    table = registry.deployments.routes("router")
    assert (table.generation, dict(table.routes)) == (1, {"bot": route})
    live = next(e for e in registry.events.after(0) if e.type == "podium.rollout.live")
    assert live.data["seconds"] >= 0
    assert (live.subject, live.key) == ("support-bot:production", "support-bot")


def test_beginning_the_same_again_gives_the_same_rollout(registry: Registry, make: Maker) -> None:
    target = promoted(registry, make.adapter())
    first = registry.deployments.begin(target)
    assert registry.deployments.begin(target) == first
    registry.deployments.finish(first.id, RolloutState.FAILED, "no")
    assert registry.deployments.begin(target).state is RolloutState.FAILED
    assert rollout_events(registry) == [("started", 1), ("failed", 1)]


def test_a_newer_target_supersedes_the_open_one_and_those_that_nobody_began(
    registry: Registry, make: Maker
) -> None:
    first = registry.deployments.begin(promoted(registry, make.adapter()))
    skipped = [promoted(registry, make.adapter()) for _ in range(2)]
    newest = registry.deployments.begin(promoted(registry, make.adapter()))
    states = {r.target.generation: r.state for r in registry.deployments.rollouts("router")}
    assert states == {
        first.target.generation: RolloutState.SUPERSEDED,
        skipped[0].generation: RolloutState.SUPERSEDED,
        skipped[1].generation: RolloutState.SUPERSEDED,
        newest.target.generation: RolloutState.STARTED,
    }
    assert [r.id for r in registry.deployments.open_rollouts("router")] == [newest.id]
    assert rollout_events(registry) == [
        ("started", 1),
        ("superseded", 1),
        ("superseded", 2),
        ("superseded", 3),
        ("started", 4),
    ]


def test_promotions_before_a_name_was_deployed_are_not_its_rollouts(registry: Registry, make: Maker) -> None:
    for _ in range(3):
        target = promoted(registry, make.adapter())
    registry.deployments.begin(target)
    assert rollout_events(registry) == [("started", 3)]


@pytest.mark.parametrize("state", [RolloutState.LIVE, RolloutState.FAILED, RolloutState.SUPERSEDED])
def test_nothing_follows_a_terminal_state(registry: Registry, make: Maker, state: RolloutState) -> None:
    rollout = registry.deployments.begin(promoted(registry, make.adapter()))
    if state is RolloutState.LIVE:
        registry.deployments.flip(rollout.id)
    registry.deployments.finish(rollout.id, state)
    before = rollout_events(registry)
    for again in (RolloutState.LIVE, RolloutState.FAILED, RolloutState.SUPERSEDED):
        with pytest.raises(Refused):
            registry.deployments.finish(rollout.id, again)
    with pytest.raises(Refused):
        registry.deployments.flip(rollout.id)
    assert rollout_events(registry) == before


def test_a_decided_route_cannot_fail_and_an_undecided_one_cannot_be_live(
    registry: Registry, make: Maker
) -> None:
    rollout = registry.deployments.begin(promoted(registry, make.adapter()))
    with pytest.raises(Refused):
        registry.deployments.finish(rollout.id, RolloutState.LIVE)
    registry.deployments.flip(rollout.id)
    with pytest.raises(Refused):
        registry.deployments.finish(rollout.id, RolloutState.FAILED)


def test_a_route_keeps_what_it_replaced_for_a_rollback(registry: Registry, make: Maker) -> None:
    versions = [make.adapter(), make.adapter()]
    for version in versions:
        rollout = registry.deployments.begin(promoted(registry, version))
        registry.deployments.flip(rollout.id)
        registry.deployments.finish(rollout.id, RolloutState.LIVE)
    one, two = (Loaded(version.ref, version.digest) for version in versions)
    route = registry.deployments.routes("router").routes["bot"]
    assert (route.current, route.previous) == (two, one)
    again = registry.deployments.begin(replace(rollout.target, revision=2))
    registry.deployments.flip(again.id)
    route = registry.deployments.routes("router").routes["bot"]
    assert (route.current, route.previous) == (two, one), "routing again to the same keeps the one before"


def test_dropping_a_route_raises_the_generation_once(registry: Registry, make: Maker) -> None:
    rollout = registry.deployments.begin(promoted(registry, make.adapter()))
    registry.deployments.flip(rollout.id)
    registry.deployments.drop_route("router", "bot")
    registry.deployments.drop_route("router", "bot")
    table = registry.deployments.routes("router")
    assert (table.generation, dict(table.routes)) == (2, {})
    assert registry.deployments.active() == ["router"]
    registry.deployments.finish(rollout.id, RolloutState.LIVE)
    registry.deployments.forget("router")
    assert registry.deployments.active() == []


def test_a_deployment_that_was_forgotten_begins_anew_and_keeps_its_history(
    registry: Registry, make: Maker
) -> None:
    target = promoted(registry, make.adapter())
    failed = registry.deployments.begin(target)
    registry.deployments.finish(failed.id, RolloutState.FAILED, "no")
    registry.deployments.forget("router")
    assert registry.deployments.latest_rollouts("router") == []
    again = registry.deployments.begin(target)
    assert again.id != failed.id and again.state is RolloutState.STARTED
    assert len(registry.deployments.rollouts("router")) == 2


def test_a_base_and_a_served_name_have_rollouts_of_their_own(registry: Registry, make: Maker) -> None:
    base = promoted(registry, make.model(), served=BASE)
    adapter = promoted(registry, make.adapter())
    for target in (base, adapter):
        registry.deployments.flip(registry.deployments.begin(target).id)
    table = registry.deployments.routes("router")
    assert table.base == Loaded(base.ref, base.digest)
    assert {r.target.served for r in registry.deployments.latest_rollouts("router")} == {"", "bot"}


def test_a_writer_whose_lease_has_passed_on_changes_nothing(registry: Registry, make: Maker) -> None:
    target = promoted(registry, make.adapter())
    old = registry.leases.acquire("controller/router", "one")
    assert old is not None
    stale = registry.acting(Origin("system:serving", authority=old.authority))
    rollout = stale.deployments.begin(target)
    assert registry.leases.acquire("controller/router", "two", seen=old) is not None
    for write in (
        lambda: stale.deployments.flip(rollout.id),
        lambda: stale.deployments.finish(rollout.id, RolloutState.FAILED),
        lambda: stale.deployments.drop_route("router", "bot"),
        lambda: stale.deployments.begin(replace(target, revision=2)),
        lambda: stale.deployments.observe("router", [ReplicaStatus("router", 0, "ready")]),
    ):
        with pytest.raises(StaleAuthority):
            write()
    assert [r.state for r in registry.deployments.rollouts("router")] == [RolloutState.STARTED]


def test_what_became_of_a_promotion_and_which_were_live_can_be_asked(registry: Registry, make: Maker) -> None:
    live = registry.deployments.begin(promoted(registry, make.adapter()))
    registry.deployments.flip(live.id)
    registry.deployments.finish(live.id, RolloutState.LIVE)
    failed = registry.deployments.begin(promoted(registry, make.adapter()))
    registry.deployments.finish(failed.id, RolloutState.FAILED, "rank too high")
    (found,) = registry.deployments.of_promotion("support-bot", "production", 2)
    assert (found.state, found.reason) == (RolloutState.FAILED, "rank too high")
    assert [r.id for r in registry.deployments.were_live("support-bot", "production")] == [live.id]
    assert registry.deployments.users(live.target.digest) == ["router"]
    assert registry.deployments.users(failed.target.digest) == []


def test_a_block_is_kept_once(registry: Registry) -> None:
    block = Block("router", "sha256:a", "sha256:b", "e1", "rank too high", datetime.now(UTC))
    registry.deployments.block(block)
    registry.deployments.block(block)
    (found,) = registry.deployments.blocks("router")
    assert replace(found, at=block.at) == block
    assert registry.deployments.blocks("other") == []


def test_what_was_last_seen_of_replicas_replaces_what_was_seen_before(registry: Registry) -> None:
    seen = [ReplicaStatus("router", index, "ready", models=("bot:v1",)) for index in range(2)]
    registry.deployments.observe("router", seen)
    registry.deployments.observe("router", [replace(seen[0], phase="dead", detail="killed")])
    (found,) = registry.deployments.replicas("router")
    assert (found.phase, found.detail, found.models) == ("dead", "killed", ("bot:v1",))
    assert found.at is not None


def test_a_condition_keeps_the_moment_since_which_it_holds(registry: Registry) -> None:
    def observe(holds: bool, reason: str) -> Condition:
        condition = Condition(ConditionType.AVAILABLE, holds, reason)
        registry.deployments.observe("router", [], [condition])
        (found,) = registry.deployments.conditions("router")
        assert replace(found, since=None) == condition and found.since is not None
        return found

    first = observe(True, "all is well")
    assert observe(True, "all is still well").since == first.since
    assert observe(False, "it died").since > first.since


def test_a_version_that_a_deployment_names_is_in_use_before_it_is_rolled_out(
    registry: Registry, make: Maker
) -> None:
    named, other = make.adapter(), make.adapter()
    body = {"base": "tiny:production", "serves": {"bot": named.ref}}
    declared = [AppObject("app", "deployment", "router", body)]
    registry.apps.apply("app", declared, plan=registry.apps.plan("app", declared))
    assert registry.deployments.users(named.digest) == ["router"]
    assert registry.deployments.users(other.digest) == []
    with pytest.raises(VersionInUse, match="the deployment 'router' serves it"):
        registry.catalog.delete(named.ref)
    registry.catalog.delete(other.ref)
