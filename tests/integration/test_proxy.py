"""A real HAProxy before small servers: what is routed, what drains, what a restart and a reload keep."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from serving import haproxy_config
from serving.child import Child, free_port
from serving.errors import StaleController
from serving.haproxy import HAProxy, find_haproxy
from serving.middleware import Fence
from tests.common.loops import eventually

FENCE = Fence(1, 1, 1)
EXECUTABLE = find_haproxy()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.skipif(EXECUTABLE is None, reason="HAProxy is not installed, and apt could not install it"),
]


class Backend:
    """A server that says who it is, and how many bytes it was sent; ``hold`` keeps answers back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hold: asyncio.Event | None = None
        self.ready = True
        self.answering = 0
        self.asked: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/health":
            await _reply(send, 200 if self.ready else 503, b"")
            return
        self.asked.append(scope["path"])
        size = 0
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        if not self.ready:
            await _reply(send, 503, b"")
            return
        headers = sorted(name.decode() for name, _ in scope["headers"] if name.startswith(b"x-"))
        self.answering += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"{self.name} ".encode(), "more_body": True})
        if self.hold is not None:
            await self.hold.wait()
        await send({"type": "http.response.body", "body": f"{size} {','.join(headers)}".encode()})
        self.answering -= 1


async def _reply(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def listening(*backends: Backend) -> AsyncIterator[list[str]]:
    """The addresses at which they answer."""
    servers, tasks, endpoints = [], [], []
    for backend in backends:
        port = free_port()
        config = uvicorn.Config(backend, host="127.0.0.1", port=port, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None
        servers.append(server)
        tasks.append(asyncio.create_task(server.serve()))
        endpoints.append(f"http://127.0.0.1:{port}")
    await eventually(lambda: all(server.started for server in servers))
    try:
        yield endpoints
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # As long as a user's may be: longer than a socket's address can be.
    return tmp_path / ("home-" + "x" * 60) / "serving" / "router" / "proxy"


def with_proxy(folder: Path, work: Callable[[HAProxy], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        proxy = HAProxy(folder, EXECUTABLE or "")
        try:
            await work(proxy)
        finally:
            await proxy.stop()

    asyncio.run(run())


async def client_of(proxy: HAProxy) -> httpx.AsyncClient:
    address = (await proxy.observe()).address
    assert address is not None
    return httpx.AsyncClient(base_url=address, trust_env=False, timeout=20)


def test_it_routes_where_it_is_told_and_a_stream_ends_where_it_began(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        one, two = Backend("one"), Backend("two")
        async with listening(one, two) as (first, second):
            await proxy.route({0: first}, FENCE)
            seen = await proxy.observe()
            assert (seen.is_running, seen.routed) == (True, {0: first})
            async with await client_of(proxy) as http:
                one.hold = asyncio.Event()
                held = asyncio.create_task(http.post("/x", content=b"abc"))
                await eventually(lambda: one.answering)
                await proxy.route({5: second}, FENCE)
                seen = await proxy.observe()
                assert (seen.routed, seen.sessions) == ({5: second}, {0: 1})
                for _ in range(5):
                    assert (await http.post("/x", content=b"")).text == "two 0 "
                one.hold.set()
                assert (await held).text == "one 3 "
                await eventually(lambda: _no_sessions(proxy))

    with_proxy(folder, work)


async def _no_sessions(proxy: HAProxy) -> bool:
    return not (await proxy.observe()).sessions


def test_it_shares_requests_between_two_and_passes_large_bodies(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        one, two = Backend("one"), Backend("two")
        async with listening(one, two) as (first, second):
            await proxy.route({0: first, 1: second}, FENCE)
            async with await client_of(proxy) as http:
                answers = [(await http.post("/x", content=b"")).text for _ in range(6)]
                assert set(answers) == {"one 0 ", "two 0 "}
                size = 20 * 1024 * 1024
                assert (await http.post("/x", content=b"x" * size)).text.split()[1] == str(size)

    with_proxy(folder, work)


def test_control_paths_and_tokens_do_not_pass(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        one = Backend("one")
        async with listening(one) as (first,):
            await proxy.route({0: first}, FENCE)
            async with await client_of(proxy) as http:
                for path in ("/podium/state", "/PODIUM/map", "/podium"):
                    refused = await http.get(path)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (404, 404)
                given = {"x-podium-token": "secret", "x-podium-fence": "1.1.1", "x-mine": "1"}
                assert (await http.post("/x", content=b"", headers=given)).text == "one 0 x-mine"
        assert not [path for path in one.asked if "podium" in path.lower()]

    with_proxy(folder, work)


def test_a_request_that_a_draining_replica_refuses_is_asked_of_another(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        one, two = Backend("one"), Backend("two")
        async with listening(one, two) as (first, second):
            await proxy.route({0: first, 1: second}, FENCE)
            async with await client_of(proxy) as http:
                await eventually(lambda: _asks_both(http, one, two))
                one.ready = False
                one.asked.clear()
                answers = [await http.post("/x", content=b"y" * 30_000) for _ in range(8)]
        assert {answer.text for answer in answers} == {"two 30000 "}
        assert one.asked, "it was never asked, so this shows nothing"

    with_proxy(folder, work)


async def _asks_both(http: httpx.AsyncClient, one: Backend, two: Backend) -> bool:
    await http.post("/x", content=b"")
    return bool(one.asked and two.asked)


def test_without_a_replica_it_says_so_in_the_shape_that_clients_read(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        await proxy.route({}, FENCE)
        async with await client_of(proxy) as http:
            answer = await http.post("/v1/completions", json={})
        assert answer.status_code == 503
        assert "No replica is ready" in answer.json()["error"]["message"]

    with_proxy(folder, work)


def test_killed_it_is_started_again_on_its_port_with_what_it_routed(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        one = Backend("one")
        async with listening(one) as (first,):
            await proxy.route({3: first}, FENCE)
            address = (await proxy.observe()).address
            record = Child(folder, "proxy.log").record
            assert record is not None and record.pid is not None
            os.kill(record.pid, signal.SIGKILL)
            other = HAProxy(folder, EXECUTABLE or "")  # as the next controller finds it
            await eventually(lambda: not Child(folder, "proxy.log").is_alive())
            seen = await other.observe()
            assert (seen.is_running, seen.routed, seen.address) == (False, {3: first}, address)
            await other.route(seen.routed, FENCE)
            async with await client_of(other) as http:
                assert (await http.post("/x", content=b"")).text == "one 0 "
            await other.stop()

    with_proxy(folder, work)


def test_another_configuration_takes_over_the_port_and_cuts_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(proxy: HAProxy) -> None:
        one = Backend("one")
        async with listening(one) as (first,):
            await proxy.route({0: first}, FENCE)
            one.hold = asyncio.Event()
            async with await client_of(proxy) as http:
                held = asyncio.create_task(http.post("/x", content=b"abc"))
                await eventually(lambda: one.answering)
                before = Child(folder, "proxy.log").record
                monkeypatch.setattr(haproxy_config, "_MOST_CONNECTIONS", 4000)
                assert not (await proxy.observe()).is_running, "it is to be replaced"
                stop = asyncio.Event()
                asking = asyncio.create_task(_ask_on(proxy, stop))
                await proxy.route({0: first}, FENCE)
                assert (await proxy.observe()).is_running
                after = Child(folder, "proxy.log").record
                assert before is not None and after is not None
                assert (before.pid, before.port) != (after.pid, after.port) and before.port == after.port
                one.hold.set()
                assert (await held).text == "one 3 "
                stop.set()
                assert set(await asking) == {200}

    with_proxy(folder, work)


async def _ask_on(proxy: HAProxy, stop: asyncio.Event) -> list[int]:
    """One client on one kept connection."""
    statuses = []
    async with await client_of(proxy) as http:
        while not stop.is_set():
            statuses.append((await http.get("/x")).status_code)
    return statuses


def test_a_port_that_another_holds_is_said(folder: Path) -> None:
    async def work() -> None:
        async with listening(Backend("one")) as (first,):
            proxy = HAProxy(folder, EXECUTABLE or "", int(first.rpartition(":")[2]))
            with pytest.raises(Exception, match="is taken"):
                await proxy.route({}, FENCE)
            await proxy.stop()

    asyncio.run(work())


def test_a_controller_that_was_replaced_routes_nothing(folder: Path) -> None:
    async def work(proxy: HAProxy) -> None:
        one = Backend("one")
        async with listening(one) as (first,):
            stale = HAProxy(folder, EXECUTABLE or "")
            await proxy.route({0: first}, Fence(1, 2, 1))
            with pytest.raises(StaleController):
                await stale.route({}, Fence(1, 1, 9))
            assert (await proxy.observe()).routed == {0: first}

    with_proxy(folder, work)


def test_a_controller_that_is_replaced_between_two_commands_gives_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by SIGSTOP after its first command, say, and continued when another leads."""

    async def work(proxy: HAProxy) -> None:
        one, two = Backend("one"), Backend("two")
        async with listening(one, two) as (first, second):
            await proxy.route({0: first}, Fence(1, 1, 1))
            stale, newer = HAProxy(folder, EXECUTABLE or ""), HAProxy(folder, EXECUTABLE or "")
            command = stale._ask

            async def then_replaced(text: str) -> str:
                answer = await command(text)
                if text.startswith("set server"):
                    await newer.route({0: first}, Fence(1, 2, 1))
                return answer

            monkeypatch.setattr(stale, "_ask", then_replaced)
            with pytest.raises(StaleController):
                await stale.route({1: second}, Fence(1, 1, 2))
            assert (await proxy.observe()).routed == {0: first}

    with_proxy(folder, work)
