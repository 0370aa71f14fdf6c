"""`podium deployments`: what it shows, what it tells a deployment, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from registry.cli.root import run
from registry.deployments import BASE, Block, Condition, ConditionType, ReplicaStatus, RolloutState, Target
from registry.operations import hash_key
from registry.processes import Process
from registry.values import AppObject, Version
from tests.common.registries import Place
from tests.common.serving import World

Podium = Callable[..., str]


@pytest.fixture
def podium(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Podium:
    """Run `podium deployments ...` and give back what it printed; ``status`` is what it must end with."""
    monkeypatch.setenv("COLUMNS", "160")
    for name, value in sqlite_place.environment.items():
        monkeypatch.setenv(name, value)

    def podium(*arguments: str, status: int = 0) -> str:
        assert run(["deployments", *arguments]) == status
        printed = capsys.readouterr()
        return printed.out + printed.err if status else printed.out

    return podium


@pytest.fixture
def router(world: World) -> World:
    """The deployment as an app declares it, with a first version live."""
    deploy(world)
    roll_out(world, world.registry.catalog.resolve("tiny:v1"), BASE, 1)
    version = world.publish(1)
    roll_out(world, version, "ticket-router", world.promote(version))
    return world


def deploy(world: World, **changes: Any) -> None:
    body = {**world.deployment.to_json(), **changes}
    objects = [AppObject("support", "deployment", "router", body)]
    world.registry.apps.apply("support", objects, plan=world.registry.apps.plan("support", objects))


def roll_out(
    world: World, version: Version, served: str, generation: int, state: RolloutState = RolloutState.LIVE
) -> None:
    target = Target(
        "router", 1, served, version.artifact, "production", generation, version.number, version.digest
    )
    rollout = world.registry.deployments.begin(target)
    if state is RolloutState.LIVE:
        world.registry.deployments.flip(rollout.id)
    if state is not RolloutState.STARTED:
        world.registry.deployments.finish(rollout.id, state, "rank too high")


def lead(world: World) -> None:
    assert world.registry.leases.acquire("controller/router", Process.current().to_text())


def observe(world: World, **changes: Any) -> None:
    status = ReplicaStatus(
        **{
            "deployment": "router",
            "index": 0,
            "phase": "ready",
            "endpoint": "http://127.0.0.1:9000",
            "boot": "0123456789abcdef",
            "base": "tiny:v1",
            "models": ("ticket-router:v1",),
            "in_flight": {"ticket-router:v1": 3},
            **changes,
        }
    )
    holds = changes.get("phase", "ready") == "ready"
    condition = Condition(ConditionType.AVAILABLE, holds, "" if holds else "replica 0 is dead")
    world.registry.deployments.observe("router", [status], [condition])


def block(world: World, digest: str) -> None:
    found = Block("router", digest, "sha256:b", "e1", "rank 64 is too high", datetime.now(UTC))
    world.registry.deployments.block(found)


def test_list_tells_what_answers_each_name_and_where(router: World, podium: Podium) -> None:
    lead(router)
    observe(router)
    printed = podium("list")
    for words in ("router", "live", "tiny:v1", "ticket-router = ticket-router:v1", "1/1", "127.0.0.1:9000"):
        assert words in printed


def test_list_where_nothing_is_deployed(world: World, podium: Podium) -> None:
    assert "Nothing is deployed" in podium("list")
    assert json.loads(podium("list", "--json")) == []


def test_show_tells_of_names_replicas_conditions_blocks_and_rollouts(router: World, podium: Podium) -> None:
    lead(router)
    observe(router)
    second = router.publish(2)
    roll_out(router, second, "ticket-router", router.promote(second), RolloutState.FAILED)
    block(router, second.digest)
    printed = podium("show", "router")
    for words in (
        "support",
        "failed",
        "ticket-router:production",
        "ticket-router:v2",
        "01234567",
        "available",
        "rank 64 is too high",
        "nobody needs one",
        "rank too high",
    ):
        assert words in printed, words
    assert "│" not in printed


def test_show_as_json_has_it_all(router: World, podium: Podium) -> None:
    lead(router)
    observe(router)
    router.registry.operations.pause("router", "release week")
    seen = json.loads(podium("show", "router", "--json"))
    assert (seen["state"], seen["paused_by"], seen["paused_reason"]) == ("paused", "user:ada", "release week")
    assert {each["served"]: (each["wanted"], each["live"]) for each in seen["names"]} == {
        "": ("tiny:v1", "tiny:v1"),
        "ticket-router": ("ticket-router:v1", "ticket-router:v1"),
    }
    (replica,) = seen["replicas"]
    assert (replica["phase"], replica["in_flight"]) == ("ready", {"ticket-router:v1": 3})
    assert [condition["type"] for condition in seen["conditions"]] == ["led", "available"]
    assert [rollout["state"] for rollout in seen["rollouts"]] == ["live", "live"]


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (lambda world: None, "unled"),
        (observe, "unled"),
        (lambda world: observe(world, phase="absent", endpoint=None), "stopped"),
        (lambda world: (lead(world), deploy(world, serves={"new": "new:production"})), "waiting"),
        (lead, "live"),
        (lambda world: (lead(world), observe(world, phase="dead")), "down"),
        (lambda world: (lead(world), world.registry.operations.pause("router")), "paused"),
        (lambda world: (lead(world), deploy(world, paused=True)), "paused"),
        (
            lambda world: (
                lead(world),
                roll_out(
                    world, v := world.publish(9), "ticket-router", world.promote(v), RolloutState.STARTED
                ),
            ),
            "rolling",
        ),
    ],
)
def test_the_state_is_one_word(
    router: World, podium: Podium, given: Callable[[World], object], state: str
) -> None:
    given(router)
    assert json.loads(podium("show", "router", "--json"))["state"] == state


def test_what_nobody_leads_is_said_to_be_as_it_was_last_seen(router: World, podium: Podium) -> None:
    observe(router)
    seen = json.loads(podium("show", "router", "--json"))
    assert (seen["replicas"][0]["phase"], seen["replicas"][0]["detail"]) == (
        "unknown",
        "was ready when last seen",
    )
    assert {each["type"]: each["holds"] for each in seen["conditions"]} == {"led": False, "available": None}
    printed = podium("list")
    assert "0/1" in printed and "router is unled: Nobody leads it: start 'podium up'." in printed


def test_what_waits_for_a_first_version_names_what_to_promote(router: World, podium: Podium) -> None:
    lead(router)
    deploy(router, serves={"new": "new:production"})
    assert "waiting: Promote a version to new:production." in podium("show", "router")
    deploy(router, serves={"new": "new:v3"})
    assert "waiting: Push or publish new:v3." in podium("show", "router")


def test_a_deployment_whose_controller_has_died_is_led_by_nobody(router: World, podium: Podium) -> None:
    dead = Process.current()
    text = Process(dead.boot, dead.namespace, 2**22 + 1, dead.started).to_text()
    assert router.registry.leases.acquire("controller/router", text)
    printed = podium("show", "router")
    assert "unled" in printed and "podium up" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "rooter"),
        ("pause", "rooter"),
        ("resume", "rooter"),
        ("restart", "rooter"),
        ("unblock", "rooter", "ticket-router:v1"),
        ("keys", "add", "rooter"),
        ("keys", "list", "rooter"),
        ("keys", "revoke", "rooter", "beef"),
        ("keys", "open", "rooter"),
    ],
)
def test_an_unknown_deployment_is_refused_and_those_that_exist_are_named(
    router: World, podium: Podium, arguments: tuple[str, ...]
) -> None:
    printed = podium(*arguments, status=2)
    assert "no deployment 'rooter'" in printed and "There are: router" in printed


def test_pause_and_resume_say_what_they_did(router: World, podium: Podium) -> None:
    assert "is paused: nothing new" in podium("pause", "router", "--reason", "release week")
    assert "is paused already" in podium("pause", "router")
    assert "follows its references again" in podium("resume", "router")
    assert "is not paused" in podium("resume", "router")
    assert not router.registry.operations.intent("router").paused


def test_a_pause_that_is_declared_is_not_resumed_by_hand(router: World, podium: Podium) -> None:
    deploy(router, paused=True)
    assert "paused=True" in podium("resume", "router", status=1)


def test_restart_waits_until_all_of_it_is_new(router: World, podium: Podium) -> None:
    lead(router)
    observe(router)
    printed = podium("restart", "router", "--wait", "--timeout", "0", status=3)
    assert "not replaced its processes within 0 s" in printed
    restarted(router)
    assert "1 of 1 replicas are new, and answer." in podium("restart", "router", "--wait")


def test_restart_does_not_wait_for_what_is_paused(router: World, podium: Podium) -> None:
    lead(router)
    router.registry.operations.pause("router")
    assert "podium deployments resume router" in podium("restart", "router", "--wait", status=3)


def restarted(world: World) -> None:
    """What the controller leaves when it has brought up new processes for the restart that comes next."""
    restarts = world.registry.operations.intent("router").restarts + 1
    world.registry.deployments.record_engine("router", world.deployment.engine.to_text(restarts))
    conditions = [
        Condition(ConditionType.AVAILABLE, True),
        Condition(ConditionType.UP_TO_DATE, True),
        Condition(ConditionType.PROGRESSING, False),
    ]
    world.registry.deployments.observe("router", world.registry.deployments.replicas("router"), conditions)


def test_restart_says_whether_somebody_waits_meanwhile(router: World, podium: Podium) -> None:
    assert "nothing runs yet" in podium("restart", "router")
    observe(router)
    assert "nobody is answered" in podium("restart", "router")
    observe(router, address="http://127.0.0.1:8000")
    assert "no answer is dropped" in podium("restart", "router")
    router.registry.operations.pause("router")
    assert "when it is resumed" in podium("restart", "router")
    assert router.registry.operations.intent("router").restarts == 4


def test_unblock_takes_a_reference_a_digest_or_its_beginning(router: World, podium: Podium) -> None:
    version = router.publish(2)
    for content in (version.ref, version.digest, version.digest[:19], version.digest[7:17]):
        block(router, version.digest)
        assert "rank 64 is too high" in podium("unblock", "router", content)
        assert router.registry.deployments.blocks("router") == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("ticket-router:v1", "blocks no content"),
        ("ticket-router:v9", "v9"),
        ("sha256:0123456789", "blocks no content"),
        ("sha256:01", "at least 8 digits"),
        ("ticket-router", "no reference to a version"),
    ],
)
def test_what_is_not_blocked_cannot_be_unblocked(
    router: World, podium: Podium, content: str, words: str
) -> None:
    assert words in podium("unblock", "router", content, status=2)


def test_a_key_is_printed_once_and_only_there(router: World, podium: Podium) -> None:
    secret = podium("keys", "add", "router", "--label", "the website").strip()
    (key,) = router.registry.client_keys.list("router")
    assert hash_key(secret) == key.sha256
    for arguments in (("keys", "list", "router"), ("show", "router"), ("show", "router", "--json")):
        printed = podium(*arguments)
        assert secret not in printed and key.sha256 not in printed
    assert "the website" in podium("keys", "list", "router")
    assert "1 good" in podium("show", "router")


def test_a_key_as_json_has_its_secret(router: World, podium: Podium) -> None:
    made = json.loads(podium("keys", "add", "router", "--json"))
    assert made["secret"].startswith(f"podium-{made['key']}-")


def test_revoking_the_last_key_says_that_nobody_is_answered(router: World, podium: Podium) -> None:
    first = json.loads(podium("keys", "add", "router", "--json"))["key"]
    second = json.loads(podium("keys", "add", "router", "--json"))["key"]
    assert "nobody is answered" not in podium("keys", "revoke", "router", first)
    assert "nobody is answered" in podium("keys", "revoke", "router", second)
    assert "none is good" in podium("show", "router")
    assert "answers whoever reaches it" in podium("keys", "open", "router")
    assert "no keys" in podium("keys", "list", "router")
