"""What a user declares: checked when it is written, the same after a way through JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import serving
from registry.apps import Deployable
from registry.errors import InvalidApp
from serving.deployment import VLLM, Deployment
from serving.errors import EngineUnavailable
from serving.parts import parts_on_this_machine
from tests.common.serving import World

ROUTER = Deployment(
    "router",
    base="smollm2:production",
    serves={"ticket-router": "ticket-router:production", "pinned": "ticket-router:v3"},
    engine=VLLM(max_lora_rank=32, args=["--max-model-len", "2048"], env={"OMP_NUM_THREADS": "2"}),
    port=8000,
)


def test_it_is_deployable_and_comes_back_from_json_as_it_was() -> None:
    assert isinstance(ROUTER, Deployable)
    raw = json.loads(json.dumps(ROUTER.to_json()))
    assert Deployment.from_json("router", raw) == ROUTER


def test_all_of_the_public_surface_is_there() -> None:
    assert set(serving.__all__) == {"Deployment", "VLLM", "run_controllers"}
    assert all(getattr(serving, name) for name in serving.__all__)


def test_settings_that_make_another_process_change_the_fingerprint() -> None:
    one = VLLM()
    assert one.fingerprint() == VLLM().fingerprint()
    assert one.fingerprint() != VLLM(max_loras=3).fingerprint()
    assert one.fingerprint() != VLLM(args=["--max-model-len", "1"]).fingerprint()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": "smollm2"}, "does not say which version"),
        ({"base": "Smol LM:v1"}, "cannot name an artifact"),
        ({"serves": {"bot": "ticket-router"}}, "does not say which version"),
        ({"serves": {"Bot!": "ticket-router:v1"}}, "cannot name an artifact"),
        ({"serves": {"bot:v1": "ticket-router:v1"}}, "cannot name an artifact"),
        ({"replicas": 0}, "0 replicas"),
        ({"replicas": 17}, "17 replicas"),
        ({"serves": {f"bot{i}": "a:v1" for i in range(9)}}, "serves 9 names"),
        ({"host": "localhost"}, "no IP address"),
        ({"name": "Router"}, "cannot name an artifact"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_where_it_is_written(
    changes: dict[str, Any], words: str
) -> None:
    given: dict[str, Any] = {"name": "router", "base": "smollm2:production", **changes}
    with pytest.raises(InvalidApp, match=words):
        Deployment(**given)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_loras": 1}, "without a pause"),
        ({"max_lora_rank": 20}, "not a rank"),
        ({"args": ["--middleware", "x"]}, "may not set --middleware"),
        ({"args": ["--served-model-name=x"]}, "may not set --served-model-name"),
        ({"args": ["--api_key", "x"]}, "may not set"),
    ],
)
def test_settings_that_would_open_a_door_or_stop_a_rollout_are_refused(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidApp, match=words):
        VLLM(**settings)


def test_a_declaration_of_another_podium_is_refused_in_words() -> None:
    with pytest.raises(InvalidApp, match="colour"):
        Deployment.from_json("router", {**ROUTER.to_json(), "colour": "red"})
    with pytest.raises(InvalidApp, match="'tgi'"):
        VLLM.from_json({"type": "tgi"})


@pytest.mark.parametrize(
    ("host", "is_public"),
    [("127.0.0.1", False), ("127.0.0.2", False), ("::1", False), ("0.0.0.0", True), ("10.0.0.7", True)],
)
def test_other_machines_reach_it_by_any_address_but_a_loopback_one(host: str, is_public: bool) -> None:
    assert Deployment("router", base="smollm2:production", host=host).is_public is is_public


def test_it_listens_to_other_machines_behind_a_proxy_only(tmp_path: Path) -> None:
    public = Deployment("router", base="smollm2:production", host="0.0.0.0")
    make = parts_on_this_machine(str(tmp_path / "no-haproxy"))
    with pytest.raises(EngineUnavailable, match=r"listens at 0\.0\.0\.0, which needs HAProxy"):
        make(public, tmp_path)
    assert make(replace(public, host="127.0.0.1"), tmp_path).front is None


def test_nobody_reaches_a_public_one_before_there_is_a_key(world: World) -> None:
    async def work() -> None:
        world.deployment = replace(world.deployment, host="0.0.0.0")
        world.promote(world.publish(1))
        controller = world.controller()
        await world.settle(controller)
        assert (await world.ask())["status"] == 401
        secret = world.registry.client_keys.add("router").secret
        await world.settle(controller)
        assert (await world.ask())["status"] == 401
        assert (await world.ask(key=secret))["status"] == 200
        world.registry.client_keys.open("router")
        await world.settle(controller)
        assert (await world.ask(key=secret))["status"] == 401

    asyncio.run(work())
