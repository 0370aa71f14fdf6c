"""Orders to deployments: what is stored, what is told, and what is tried again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from registry.deployments import Block, Rollout, RolloutState, Target
from registry.errors import InvalidInput, NotFound
from registry.protocol import Registry
from registry.values import AppObject, Version
from tests.common.registries import Maker


@pytest.fixture(autouse=True)
def declared(registry: Registry) -> None:
    objects = [AppObject("app", "deployment", "router", {"base": "tiny:production", "serves": {}})]
    registry.apps.apply("app", objects, plan=registry.apps.plan("app", objects))


def failed(registry: Registry, version: Version, generation: int) -> Rollout:
    target = Target(
        "router", 1, "bot", version.artifact, "production", generation, version.number, version.digest
    )
    return registry.deployments.finish(registry.deployments.begin(target).id, RolloutState.FAILED, "no")


def told(registry: Registry) -> list[str]:
    events = registry.events.after(0, limit=500)
    return [e.type.rpartition(".")[2] for e in events if e.type.startswith("podium.deployment.")]


def test_a_pause_stands_with_who_and_why_until_it_is_resumed(registry: Registry) -> None:
    assert not registry.operations.intent("router").paused
    assert not registry.operations.intent("nobody").paused
    paused = registry.operations.pause("router", "release week")
    assert (paused.paused, paused.reason, paused.by) == (True, "release week", "user:ada")
    assert registry.operations.intent("router") == paused
    resumed = registry.operations.resume("router")
    assert (resumed.paused, resumed.reason) == (False, "")
    assert told(registry) == ["paused", "resumed"]


def test_what_is_so_already_is_no_event(registry: Registry) -> None:
    registry.operations.resume("router")
    registry.operations.pause("router")
    registry.operations.pause("router")
    assert told(registry) == ["paused"]


def test_each_restart_counts(registry: Registry) -> None:
    assert registry.operations.restart("router").restarts == 1
    registry.operations.pause("router")
    assert registry.operations.restart("router").restarts == 2
    assert registry.operations.intent("router").paused


def test_an_unknown_deployment_is_refused_and_those_that_exist_are_named(registry: Registry) -> None:
    for order in (
        registry.operations.pause,
        registry.operations.resume,
        registry.operations.restart,
        lambda name: registry.operations.unblock(name, "sha256:a"),
        registry.client_keys.add,
        registry.client_keys.list,
        lambda name: registry.client_keys.revoke(name, "0000"),
        registry.client_keys.open,
    ):
        with pytest.raises(NotFound, match="no deployment 'rooter'") as caught:
            order("rooter")
        assert "router" in caught.value.remedy


def test_a_reason_that_cannot_be_shown_is_refused(registry: Registry) -> None:
    with pytest.raises(InvalidInput):
        registry.operations.pause("router", "\x1b[2J")


def test_unblocking_lets_what_is_still_asked_for_begin_again(registry: Registry, make: Maker) -> None:
    version = make.adapter()
    generation = registry.promotions.promote(version.ref, "production").generation
    rollout = failed(registry, version, generation)
    registry.deployments.block(
        Block("router", version.digest, "sha256:b", "e1", "rank too high", datetime.now(UTC))
    )
    (block,) = registry.operations.unblock("router", version.digest)
    assert block.reason == "rank too high"
    assert registry.deployments.blocks("router") == []
    assert registry.deployments.latest_rollouts("router") == []
    again = registry.deployments.begin(rollout.target)
    assert (again.state, again.id == rollout.id) == (RolloutState.STARTED, False)
    assert told(registry) == ["unblocked"]
    with pytest.raises(NotFound, match="blocks no content"):
        registry.operations.unblock("router", version.digest)


def test_what_has_been_moved_on_from_is_not_begun_again(registry: Registry, make: Maker) -> None:
    version = make.adapter()
    generation = registry.promotions.promote(version.ref, "production").generation
    failed(registry, version, generation)
    registry.promotions.promote(make.adapter().ref, "production")
    registry.operations.restart("router")
    assert [r.target.generation for r in registry.deployments.latest_rollouts("router")] == [generation]


def test_a_restart_tries_again_what_failed_but_not_what_is_blocked(registry: Registry, make: Maker) -> None:
    version = make.adapter()
    generation = registry.promotions.promote(version.ref, "production").generation
    failed(registry, version, generation)
    block = Block("router", version.digest, "sha256:b", "e1", "rank too high", datetime.now(UTC))
    registry.deployments.block(block)
    registry.operations.restart("router")
    assert len(registry.deployments.latest_rollouts("router")) == 1
    registry.operations.unblock("router", version.digest)
    assert registry.deployments.latest_rollouts("router") == []


def test_a_removed_deployment_leaves_no_intent_to_the_next_of_its_name(registry: Registry) -> None:
    registry.operations.pause("router")
    registry.deployments.forget("router")
    assert not registry.operations.intent("router").paused
