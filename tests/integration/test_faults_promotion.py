"""Hundreds of promotions while writers, relays, publishers and servers are killed: none lost, none twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from registry.settings import Settings
from registry.store.stored import StoredRegistry
from registry.values import Event, Promotion
from tests.common.content import read_folder, write_dataset
from tests.common.faults import Actor, Place, promote, publish, relay
from tests.common.postgres import PostgresServer
from tests.common.services import Bucket, NatsServer, Service, temporary_folder
from tests.common.waiting import wait_until
from triggers.bus import Stream
from triggers.connection import Address, Connection
from triggers.jetstream import JetStreamBus

pytestmark = pytest.mark.integration

PROMOTION_POINTS = ("promotion.moved", "promotion.recorded", "promotion.committed")
UPLOAD_POINTS = ("upload.chunk_stored", "publish.recorded")
RELAY_POINTS = ("relay.claimed", "relay.published", "relay.marked")
_DEATHS = 100  # of processes, beside those of servers
_PROMOTIONS = 500


@dataclass
class Scene:
    """What a test works on: a place with its registry, and the servers that it may kill."""

    place: Place
    registry: StoredRegistry
    nats: NatsServer
    servers: Sequence[Service]

    def actors(self) -> list[Actor]:
        writers = [Actor(f"writer-{n}", promote, self.place, PROMOTION_POINTS) for n in range(2)]
        relays = [Actor(f"relay-{n}", relay, self.place, RELAY_POINTS) for n in range(2)]
        return [*writers, *relays, Actor("publisher", publish, self.place, UPLOAD_POINTS)]

    def acknowledged(self) -> int:
        """How many promotions were acknowledged so far, roughly."""
        return sum(path.read_text().count("generation") for path in self.place.folder.glob("*.told"))


@pytest.fixture
def on_sqlite(tmp_path: Path, nats_server: NatsServer) -> Iterator[Scene]:
    yield from _scene(tmp_path, nats_server, Settings(home=tmp_path / "home", lease_seconds=2.0), {}, [])


@pytest.fixture
def on_postgresql(tmp_path: Path, nats_server: NatsServer, s3: Bucket) -> Iterator[Scene]:
    folder = temporary_folder("postgres-killed")
    server = PostgresServer(folder)
    try:
        server.start()
        settings = Settings(
            home=tmp_path / "home", url=SecretStr(server.database()), blobs=s3.url, lease_seconds=2.0
        )
        yield from _scene(tmp_path, nats_server, settings, s3.environment, [server])
    finally:
        server.stop()
        shutil.rmtree(folder)


def _scene(
    folder: Path,
    nats: NatsServer,
    settings: Settings,
    environment: dict[str, str],
    servers: Sequence[Service],
) -> Iterator[Scene]:
    told = folder / "told"
    told.mkdir()
    place = Place(settings, environment, told, nats.url)
    registry = place.open()
    for name in ("ant", "bee"):
        for number in (1, 2, 3):
            path = write_dataset(folder / name / str(number), {"data.txt": f"{name} {number}".encode()})
            registry.catalog.publish(name, path, "dataset")
    yield Scene(place, registry, nats, [nats, *servers])
    registry.close()


def test_on_sqlite_and_a_folder(on_sqlite: Scene, tmp_path: Path) -> None:
    _survive(on_sqlite, tmp_path, server_deaths=8)


@pytest.mark.timeout(300)
def test_on_postgresql_and_s3(on_postgresql: Scene, tmp_path: Path) -> None:
    _survive(on_postgresql, tmp_path, server_deaths=10)


def _survive(scene: Scene, folder: Path, *, server_deaths: int) -> None:
    actors = scene.actors()
    try:
        _kill_until_enough(scene, actors, server_deaths)
        for actor in actors:
            actor.kill()
        last = Actor("relay", relay, scene.place)
        actors.append(last)
        last.start()
        wait_until(lambda: _is_relayed(scene.registry), 60, lambda: f"{scene.registry.events.position()}")
    finally:
        for actor in actors:
            actor.kill()
    _check(scene, folder)


def _kill_until_enough(scene: Scene, actors: Sequence[Actor], server_deaths: int) -> None:
    chance = random.Random(20261130)
    for actor in actors:
        actor.start(chance)
    servers = 0
    for _ in range(100_000):
        connection.wait([actor.sentinel for actor in actors], timeout=chance.uniform(0.01, 0.12))
        dead = [actor for actor in actors if actor.reap()]
        victim = chance.choice(actors)
        # No faster than promotions come: on a busy machine nobody would live long enough to make one.
        share = scene.acknowledged() / _PROMOTIONS
        if victim not in dead and _deaths(actors).total() < share * _DEATHS:
            victim.kill()
            dead.append(victim)
        for actor in dead:
            actor.start(chance)
        if _is_enough(scene, actors) and servers >= server_deaths:
            return
        if servers < server_deaths * min(1.0, share):
            _kill_and_start(scene.servers[servers % len(scene.servers)])
            servers += 1
    raise AssertionError(f"{_deaths(actors)} and {scene.acknowledged()} promotions are not enough")


def _deaths(actors: Sequence[Actor]) -> Counter[str]:
    return sum((actor.deaths for actor in actors), Counter[str]())


def _is_enough(scene: Scene, actors: Sequence[Actor]) -> bool:
    deaths = _deaths(actors)
    points = {point for actor in actors for point in actor.points}
    return deaths.total() >= _DEATHS and points <= set(deaths) and scene.acknowledged() >= _PROMOTIONS


def _kill_and_start(server: Service) -> None:
    server.kill()

    def started() -> bool:
        # What a killed PostgreSQL has left behind may keep its memory for a moment.
        with suppress(RuntimeError):
            server.start()
            return True
        server.stop()
        return False

    wait_until(started, 60, lambda: server.log_tail())


def _is_relayed(registry: StoredRegistry) -> bool:
    position = registry.events.position()
    return position.relayed == position.newest


# The oracle: what was acknowledged, the history, the outbox and the raw stream say the same.


def _check(scene: Scene, folder: Path) -> None:
    registry = scene.registry
    events = registry.events.after(0, limit=1_000_000)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert registry.events.position().incarnation == 1
    assert _raw_stream(scene) == [(event.sequence, event.id) for event in events]
    history = [move for name in ("ant", "bee") for move in registry.promotions.history(name, limit=1_000_000)]
    told = scene.place.acknowledgements()
    _check_history(history, events)
    _check_acknowledged(history, [each for each in told if "generation" in each])
    _check_versions(registry, [each for each in told if "version" in each], events, folder)


def _raw_stream(scene: Scene) -> list[tuple[int, str]]:
    async def read() -> list[Event]:
        bus = JetStreamBus(Connection(lambda: Address(scene.nats.url)))
        position = scene.registry.events.position()
        stream = Stream(position.database_id, position.incarnation)
        reader = await bus.reader(stream, f"look-{os.urandom(4).hex()}", after=0)
        events: list[Event] = []
        while came := await reader.fetch(1000, 0.5):
            events += came
        await reader.close()
        await bus.close()
        return events

    return [(event.sequence, event.id) for event in asyncio.run(read())]


def _check_history(history: Sequence[Promotion], events: Sequence[Event]) -> None:
    moved = [e for e in events if e.type in ("podium.alias.promoted", "podium.alias.rolledback")]
    assert Counter(e.id for e in moved) == Counter(m.event for m in history)
    generations: dict[tuple[str, str], list[int]] = {}
    for event in moved:  # in the order of the stream
        where = (event.data["artifact"], event.data["alias"])
        generations.setdefault(where, []).append(event.data["generation"])
    assert all(order == list(range(1, len(order) + 1)) for order in generations.values())
    ordered = sorted(history, key=lambda move: (move.artifact, move.alias, move.generation))
    for _, group in groupby(ordered, key=lambda move: (move.artifact, move.alias)):
        chain = list(group)
        assert [m.from_version for m in chain] == [None, *(m.to_version for m in chain[:-1])]


def _check_acknowledged(history: Sequence[Promotion], told: Sequence[dict[str, Any]]) -> None:
    rows = {(m.artifact, m.alias, m.generation): m.event for m in history}
    acknowledged = [(t["name"], t["alias"], t["generation"]) for t in told]
    assert len(set(acknowledged)) == len(acknowledged) >= _PROMOTIONS
    assert all(rows.get(key) == t["event"] for key, t in zip(acknowledged, told, strict=True))


def _check_versions(
    registry: StoredRegistry, told: Sequence[dict[str, Any]], events: Sequence[Event], folder: Path
) -> None:
    there = {version.number: version for version in registry.catalog.versions("cat", limit=100_000)}
    assert told
    assert all(there[each["version"]].digest == each["digest"] for each in told)
    announced = [e.data["version"] for e in events if e.type == "podium.version.published" and e.key == "cat"]
    assert sorted(announced) == sorted(there)
    for number in sorted(there)[:: max(1, len(there) // 20)]:
        registry.catalog.pull(f"cat:v{number}", folder / "pulled" / str(number))
        assert len(read_folder(folder / "pulled" / str(number))) == 3
    keys = {key for version in there.values() for key in registry.catalog.manifest(version.digest).chunks()}
    assert not registry._files._store.missing(keys)
