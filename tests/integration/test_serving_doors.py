"""What a client reaches of a deployment, as real processes: through HAProxy where there is one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import VLLM, run_controllers
from serving.desiring import Declared
from serving.haproxy import find_haproxy
from serving.metrics_server import metrics_at
from serving.middleware import TOKEN_HEADER
from tests.common.registries import Place
from tests.common.serving import World
from tests.common.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.skipif(find_haproxy() is None, reason="HAProxy is not installed"),
]


@pytest.fixture
def world(tmp_path: Path, sqlite_place: Place) -> World:
    world = World(tmp_path, sqlite_place.open())
    world.publish_base()
    world.promote(world.publish(1))
    world.deployment = replace(world.deployment, engine=VLLM(module="serving.fake_vllm"), host="0.0.0.0")
    return world


@asynccontextmanager
async def served(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the deployment as real processes; of its address on the loopback interface."""
    stop, said = asyncio.Event(), list[str]()
    declared = {"router": Declared(world.deployment, 1)}
    running = asyncio.create_task(
        run_controllers(
            world.registry, asyncio.Event(), stop, lambda _, line: said.append(line), source=lambda: declared
        )
    )
    try:
        await until(lambda: bool(world.rollouts()) and world.rollouts()[-1].ended_at is not None, said)
        await until(lambda: bool(world.registry.deployments.replicas("router")), said)
        address = world.registry.deployments.replicas("router")[0].address
        assert address is not None
        port = address.rpartition(":")[2]
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30
        ) as http:
            yield http
    finally:
        stop.set()
        await running


async def until(condition: Callable[[], bool], said: list[str]) -> None:
    await asyncio.to_thread(wait_until, condition, 60, lambda: str(said[-10:]))


async def status(http: httpx.AsyncClient, key: str = "", **more: Any) -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {"model": "ticket-router", "prompt": "hello", "max_tokens": 2}
    return (await http.post("/v1/completions", json=body, headers=headers, **more)).status_code


async def becomes(http: httpx.AsyncClient, key: str, expected: int) -> None:
    """Wait until a key is answered so."""
    for _ in range(600):
        if await status(http, key) == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not answered {expected} within 30 s")


def test_keys_open_and_close_a_public_deployment_without_a_restart(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with served(world) as http:
            boots = [replica.boot for replica in world.registry.deployments.replicas("router")]
            assert await status(http) == 401
            one, other = (world.registry.client_keys.add("router") for _ in range(2))
            await becomes(http, one.secret, 200)
            assert (await status(http), await status(http, one.secret + "x")) == (401, 401)
            world.registry.client_keys.revoke("router", one.key.id)
            await becomes(http, one.secret, 401)
            assert await status(http, other.secret) == 200
            assert [r.boot for r in world.registry.deployments.replicas("router")] == boots
            keep_secret(world, [one.secret, other.secret])

    asyncio.run(work())


def keep_secret(world: World, secrets: list[str]) -> None:
    """No file of the deployment or of the registry holds a key: no log, no record, no event."""
    files = [file for file in world.registry.settings.home.rglob("*") if file.is_file()]
    assert any(file.name.endswith(".log") for file in files)
    for file in files:
        content = file.read_bytes()
        assert not any(secret.encode() in content for secret in secrets), file


def test_only_the_paths_of_clients_pass_and_no_token_helps(world: World) -> None:
    async def work() -> None:
        async with served(world) as http:
            key = world.registry.client_keys.add("router").secret
            await becomes(http, key, 200)
            record = next((world.registry.settings.home / "serving" / "router").glob("replica-*/*.json"))
            token = json.loads(record.read_text())["token"]
            headers = {"authorization": f"Bearer {key}", TOKEN_HEADER.decode(): token}
            for method, path in (
                ("GET", "/podium/state"),
                ("PUT", "/podium/map"),
                ("POST", "/podium/drain"),
                ("POST", "/v1/load_lora_adapter"),
                ("POST", "/v1/unload_lora_adapter"),
                ("GET", "/metrics"),
                ("GET", "/docs"),
            ):
                answer = await http.request(method, path, json={}, headers=headers)
                assert answer.status_code == 404, path
                assert answer.json()["error"]["message"], path
            models = await http.get("/v1/models", headers=headers)
            assert models.json()["data"][0]["id"] == "ticket-router"

    asyncio.run(work())


def test_a_large_body_passes_a_larger_one_and_endless_headers_do_not(world: World) -> None:
    async def work() -> None:
        async with served(world) as http:
            key = world.registry.client_keys.add("router").secret
            await becomes(http, key, 200)
            headers = {"authorization": f"Bearer {key}"}
            large = {"model": "ticket-router", "prompt": "x" * 8_000_000, "max_tokens": 2}
            assert (await http.post("/v1/completions", json=large, headers=headers)).status_code == 200
            larger = {"model": "ticket-router", "prompt": "x" * 40_000_000}
            assert await outcome(http, json=larger, headers=headers) in (413, "closed")
            many = {f"x-{number}": "1" for number in range(300)}
            assert await outcome(http, json={}, headers=headers | many) in (400, 431)
            assert await status(http, key) == 200

    asyncio.run(work())


async def outcome(http: httpx.AsyncClient, **request: Any) -> int | str:
    try:
        return (await http.post("/v1/completions", **request)).status_code
    except httpx.TransportError:
        return "closed"  # the answer was sent, and the connection ended before all had been read


def test_prometheus_is_told_of_what_was_answered(world: World) -> None:
    async def work() -> None:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        async with served(world) as http:
            key = world.registry.client_keys.add("router").secret
            await becomes(http, key, 200)
            for _ in range(5):
                assert await status(http, key) == 200
            with metrics_at(f"127.0.0.1:{port}") as url:
                assert url is not None
                async with httpx.AsyncClient(trust_env=False) as prometheus:
                    for _ in range(100):
                        text = (await prometheus.get(url)).text
                        found = [line for line in text.splitlines() if "podium_answers_total{" in line]
                        if any('status="200"' in line and float(line.split()[-1]) >= 6 for line in found):
                            break
                        await asyncio.sleep(0.1)
                    else:
                        raise AssertionError(text)
                    index = world.registry.deployments.replicas("router")[0].index
                    own = await prometheus.get(f"{url}/router/{index}")
                    assert (own.status_code, "vllm:num_requests_running" in own.text) == (200, True)
                    assert (await prometheus.get(f"{url}/router/99")).status_code == 404
            assert 'podium_swaps_total{deployment="router",outcome="live"}' in text
            assert 'version="ticket-router:v1"' in text and "podium_requests_refused_total{" in text

    asyncio.run(work())
