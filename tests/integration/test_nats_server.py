"""The server that podium runs itself: found by others, closed to strangers, back after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import psutil
import pytest

from registry.errors import BrokerUnavailable
from registry.settings import Settings
from tests.common.loops import eventually
from tests.common.waiting import wait_until
from tests.unit.triggers.bus_suite import STREAM, event, fill, take
from triggers.bus import Outcome
from triggers.connection import Address, Connection, Role, find_address, server_file
from triggers.errors import ServerNotRunning
from triggers.jetstream import JetStreamBus
from triggers.nats_server import run_server

pytestmark = pytest.mark.integration


def quiet(line: str, *, healthy: bool = True) -> None:
    """Nobody listens to the report."""


@asynccontextmanager
async def server(home: Path) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run_server(home, stop, quiet))
    try:
        await eventually(lambda: is_running(home) or task.done())
        yield
    finally:
        stop.set()
        await task


def settings(home: Path) -> Settings:
    return Settings(home=home)


def is_running(home: Path) -> bool:
    try:
        find_address(settings(home), Role.READER)
    except ServerNotRunning:
        return False
    return True


def stated(home: Path) -> Any:
    return json.loads(server_file(home).read_text())


def bus_of(home: Path, role: Role = Role.RELAY) -> JetStreamBus:
    return JetStreamBus(Connection(lambda: find_address(settings(home), role)))


def test_its_files_can_be_read_by_nobody_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path):
            for path in (server_file(tmp_path), tmp_path / "nats" / "nats.conf"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600

    asyncio.run(scenario())


def test_without_credentials_nobody_gets_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path):
            stranger = Connection(lambda: Address(f"nats://127.0.0.1:{stated(tmp_path)['port']}"))
            with pytest.raises(BrokerUnavailable, match=r"(?i)authorization"):
                await stranger.client()

    asyncio.run(scenario())


def test_readers_can_read_but_neither_publish_nor_change_streams(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path):
            relay, reader = bus_of(tmp_path), bus_of(tmp_path, Role.READER)
            await relay.create(STREAM)
            events = await fill(relay, 2)
            reading = await reader.reader(STREAM, "apps", after=0)
            assert await take(reading, 2) == events
            await reading.acknowledge()
            jetstream = (await reader.connection.client()).jetstream(timeout=0.3)
            with pytest.raises(nats.errors.TimeoutError):
                await jetstream.publish(f"podium.{STREAM.database_id}.x", b"forged")
            with pytest.raises(nats.errors.TimeoutError):
                await jetstream.delete_stream(STREAM.name)
            with pytest.raises(nats.errors.TimeoutError):
                await jetstream.purge_stream(STREAM.name)
            assert (await relay.state(STREAM)).last is not None
            await reader.close()
            await relay.close()

    asyncio.run(scenario())


def test_a_server_that_dies_is_started_again_with_what_it_held_and_where_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path):
            bus = bus_of(tmp_path)
            await bus.create(STREAM)
            await fill(bus, 3)
            before = stated(tmp_path)
            os.kill(before["server"]["pid"], signal.SIGKILL)
            await eventually(lambda: is_running(tmp_path) and stated(tmp_path)["server"] != before["server"])
            assert stated(tmp_path)["port"] == before["port"]
            assert await eventually(lambda: published(bus, 4)) is not None
            await bus.close()

    asyncio.run(scenario())


async def published(bus: JetStreamBus, sequence: int) -> Outcome | None:
    try:
        return await bus.publish(STREAM, event(sequence), after=f"event-{sequence - 1}")
    except BrokerUnavailable:
        return None


def test_the_next_owner_finds_port_and_credentials_unchanged(tmp_path: Path) -> None:
    async def once() -> Any:
        async with server(tmp_path):
            return stated(tmp_path)

    first, second = asyncio.run(once()), asyncio.run(once())
    assert (first["port"], first["users"]) == (second["port"], second["users"])
    assert first["server"] != second["server"]


def test_a_second_owner_stands_by_and_takes_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        stop_first, stop_second = asyncio.Event(), asyncio.Event()
        reports: list[str] = []
        first = asyncio.create_task(run_server(tmp_path, stop_first, quiet))
        await eventually(lambda: is_running(tmp_path))
        second = asyncio.create_task(
            run_server(tmp_path, stop_second, lambda line, **_: reports.append(line))
        )
        await eventually(lambda: any("another" in text for text in reports))
        stop_first.set()
        await first
        await eventually(lambda: any("listening" in text for text in reports))
        stop_second.set()
        await second

    asyncio.run(scenario())


def test_a_stale_file_is_recognised_and_the_owners_server_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from triggers.nats_server import run_server\n"
        "asyncio.run(run_server(Path(sys.argv[1]), asyncio.Event(), lambda *_, **__: None))"
    )
    owner = subprocess.Popen([sys.executable, "-P", "-c", code, str(tmp_path)])
    try:
        wait_until(lambda: is_running(tmp_path), 20, "it runs")
        child = stated(tmp_path)["server"]["pid"]
    finally:
        owner.kill()
        owner.wait()
    with pytest.raises(ServerNotRunning):
        find_address(settings(tmp_path), Role.READER)
    wait_until(lambda: not psutil.pid_exists(child), 20, "the server ended with its owner")

    async def next_owner() -> None:
        async with server(tmp_path):
            assert is_running(tmp_path)

    asyncio.run(next_owner())
