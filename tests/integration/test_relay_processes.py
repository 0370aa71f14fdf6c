"""Relays and consumers as real processes over a real server, killed in the middle: nothing lost or twice."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from registry.settings import Settings
from registry.store.stored import StoredRegistry
from registry.values import Event
from tests.common import event_process
from tests.common.outbox import emit_promotion
from tests.common.services import NatsServer
from tests.common.waiting import wait_until
from triggers.adopting import adopt
from triggers.bus import Stream
from triggers.connection import Address, Connection
from triggers.jetstream import JetStreamBus

pytestmark = pytest.mark.integration


@dataclass
class World:
    """A database and a server, and what is to be seen of them."""

    registry: StoredRegistry
    server: NatsServer
    home: Path
    url: str | None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def close(self) -> None:
        """End what a failed test has left."""
        for process in self.processes:
            process.kill()
            process.wait()

    @property
    def environment(self) -> dict[str, str]:
        variables = {
            "PODIUM_HOME": str(self.home),
            "PODIUM_NATS": self.server.url,
            "PODIUM_LEASE_SECONDS": "3",
        }
        return {**os.environ, **variables, **({"PODIUM_URL": self.url} if self.url else {})}

    def start(self, *arguments: str, crash_at: str = "") -> subprocess.Popen[bytes]:
        with (self.home / "processes.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", event_process.__file__, *arguments],
                env={**self.environment, "PODIUM_CRASH_AT": crash_at},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.start(*arguments)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)

    @property
    def stream(self) -> Stream:
        position = self.registry.events.position()
        return Stream(position.database_id, position.incarnation)

    def in_stream(self) -> list[Event]:
        """Everything that lies in the stream, as a reader of its own sees it."""

        async def read(bus: JetStreamBus) -> list[Event]:
            reader = await bus.reader(self.stream, f"look-{os.urandom(4).hex()}", after=0)
            events: list[Event] = []
            while came := await reader.fetch(1000, 0.5):
                events += came
            await reader.close()
            return events

        return self.with_bus(read)

    def with_bus(self, call: Callable[[JetStreamBus], Awaitable[list[Event]]]) -> list[Event]:
        async def connected() -> list[Event]:
            bus = JetStreamBus(Connection(lambda: Address(self.server.url)))
            try:
                return await call(bus)
            finally:
                await bus.close()

        return asyncio.run(connected())

    def wait_until_relayed(self) -> None:
        def relayed() -> bool:
            position = self.registry.events.position()
            return position.relayed == position.newest

        wait_until(relayed, 40, lambda: f"{self.registry.events.position()}\n{self.log()}")

    def assert_stream_is_outbox(self) -> None:
        assert self.in_stream() == self.registry.events.after(0, limit=100_000)

    def log(self) -> str:
        return (self.home / "processes.log").read_text()


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path, nats_server: NatsServer) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    home = tmp_path / "home"
    home.mkdir()
    settings = Settings(home=home, url=SecretStr(url) if url else None, actor="ada")
    registry = StoredRegistry.open(settings)
    world = World(registry, nats_server, home, url)
    yield world
    world.close()
    registry.close()


@pytest.mark.parametrize("point", ["relay.claimed", "relay.created", "relay.published", "relay.marked"])
def test_a_relay_killed_at_each_point_leaves_the_stream_equal_to_the_outbox(world: World, point: str) -> None:
    for n in range(3):
        emit_promotion(world.registry, version=n + 1)
    killed = world.start("relay", crash_at=point)
    assert killed.wait(30) == -signal.SIGKILL, world.log()
    emit_promotion(world.registry, version=9)
    with world.running("relay"):
        world.wait_until_relayed()
    world.assert_stream_is_outbox()
    assert world.registry.events.position().incarnation == 1


def test_two_relays_and_a_kill_of_the_one_that_leads(world: World) -> None:
    with world.running("relay") as first, world.running("relay"):
        emit_promotion(world.registry, version=1)
        world.wait_until_relayed()
        leader = world.registry.leases.get("relay")
        assert leader is not None
        for n in range(2, 12):
            emit_promotion(world.registry, version=n)
        if str(first.pid) in leader.holder:
            first.kill()
        emit_promotion(world.registry, version=12)
        world.wait_until_relayed()
    world.assert_stream_is_outbox()


def test_a_leader_that_was_paused_past_its_lease_disturbs_nothing(world: World) -> None:
    with world.running("relay") as first:
        emit_promotion(world.registry, version=1)
        world.wait_until_relayed()
        first.send_signal(signal.SIGSTOP)
        with world.running("relay"):
            for n in range(2, 22):
                emit_promotion(world.registry, version=n)
            world.wait_until_relayed()
            first.send_signal(signal.SIGCONT)
            for n in range(22, 42):
                emit_promotion(world.registry, version=n)
            world.wait_until_relayed()
    world.assert_stream_is_outbox()


def test_the_server_is_killed_again_and_again_while_events_come(world: World) -> None:
    with world.running("relay"):
        for n in range(60):
            emit_promotion(world.registry, f"name-{n % 3}", n + 1)
            if n % 15 == 7:
                world.server.kill()
                world.server.start()
        world.wait_until_relayed()
    world.assert_stream_is_outbox()
    assert world.registry.events.position().incarnation == 1


def test_a_server_that_lost_its_storage_is_filled_again(world: World) -> None:
    with world.running("relay"):
        for n in range(5):
            emit_promotion(world.registry, version=n + 1)
        world.wait_until_relayed()
        world.server.kill()
        shutil.rmtree(world.server.folder / "jetstream")
        world.server.start()
        wait_until(lambda: world.registry.events.position().incarnation == 2, 30, world.log)
        emit_promotion(world.registry, version=9)
        world.wait_until_relayed()
    world.assert_stream_is_outbox()


def test_a_server_restored_to_an_older_state_is_filled_again(world: World) -> None:
    storage, backup = world.server.folder / "jetstream", world.server.folder / "backup"
    with world.running("relay"):
        emit_promotion(world.registry, version=1)
        world.wait_until_relayed()
        world.server.kill()
        shutil.copytree(storage, backup)
        world.server.start()
        for n in range(2, 6):
            emit_promotion(world.registry, version=n)
        world.wait_until_relayed()
        world.server.kill()
        shutil.rmtree(storage)
        shutil.copytree(backup, storage)
        world.server.start()
        wait_until(lambda: world.registry.events.position().incarnation == 2, 30, world.log)
        world.wait_until_relayed()
    world.assert_stream_is_outbox()


def test_a_restored_database_stops_the_relay_until_it_is_adopted(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    registry = StoredRegistry.open(Settings(home=home, actor="ada"))
    world = World(registry, nats_server, home, None)
    with world.running("relay"):
        emit_promotion(registry, version=1)
        world.wait_until_relayed()
    with sqlite3.connect(home / "podium.db") as live, sqlite3.connect(tmp_path / "backup.db") as copy:
        live.backup(copy)
    live.close()
    copy.close()
    with world.running("relay"):
        emit_promotion(registry, version=2)
        world.wait_until_relayed()
    registry.close()
    for path in home.glob("podium.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", home / "podium.db")
    registry = StoredRegistry.open(Settings(home=home, actor="ada"))
    world = World(registry, nats_server, home, None)
    emit_promotion(registry, version=3)

    refused = world.start("relay")
    assert refused.wait(30) == 1
    assert "restored from a backup" in world.log()
    assert registry.events.position().relayed == 1

    async def begin_anew(bus: JetStreamBus) -> list[Event]:
        assert await adopt(registry, bus) == 2
        return []

    world.with_bus(begin_anew)
    with world.running("relay"):
        world.wait_until_relayed()
    world.assert_stream_is_outbox()
    registry.close()


@pytest.mark.parametrize("point", ["delivery.recorded", "delivery.handled", "delivery.ended"])
def test_a_consumer_killed_at_each_point_handles_everything_in_order(world: World, point: str) -> None:
    seen = world.home / "seen"
    with world.running("relay"):
        with world.running("consumer", str(seen)):
            wait_until(lambda: "1 served from" in world.log(), 30, world.log)
            emit_promotion(world.registry, "a", 1)
            wait_until(lambda: versions(seen, "a") == [1], 30, world.log)
        killed = world.start("consumer", str(seen), crash_at=f"{point}:2")
        wait_until(lambda: world.log().count("1 served from") == 2, 30, world.log)
        for n in range(2, 7):
            emit_promotion(world.registry, "a", n)
            emit_promotion(world.registry, "b", n)
        assert killed.wait(30) == -signal.SIGKILL, world.log()
        with world.running("consumer", str(seen)):
            wait_until(lambda: is_done(world, 11), 30, world.log)
    for name in ("a", "b"):
        expected = ([1] if name == "a" else []) + [2, 3, 4, 5, 6]
        assert without_repeats(versions(seen, name)) == expected
    repeats = len(versions(seen, "a")) + len(versions(seen, "b")) - 11
    assert repeats <= 8  # at most what ran when it was killed


def versions(path: Path, name: str) -> list[int]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(version) for key, version in map(str.split, lines) if key == name]


def without_repeats(numbers: list[int]) -> list[int]:
    """Runs of the same number as one: a handler may be called again, but not out of its turn."""
    return [number for number, _ in itertools.groupby(numbers)]


def is_done(world: World, count: int) -> bool:
    found = world.registry.deliveries.find(limit=100)
    return len(found) == count and all(each.state == "done" for each in found)
