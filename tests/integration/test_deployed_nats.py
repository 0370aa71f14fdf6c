"""The cluster that deploy/nats.conf describes: it forms, replicates, and lets only the relay publish."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.errors import TimeoutError as NatsTimeoutError

from registry.errors import BrokerUnavailable
from registry.values import Event
from tests.common.services import HOST, NatsServer, free_ports
from tests.common.waiting import wait_until
from tests.unit.triggers.bus_suite import STREAM, event, fill
from triggers.bus import Condition, Outcome, Stored, StreamState
from triggers.connection import Address, Connection
from triggers.jetstream import JetStreamBus
from triggers.nats_server import READER_REQUESTS

pytestmark = pytest.mark.integration

_CONFIG = Path(__file__).parents[2] / "deploy" / "nats.conf"
_PASSWORDS = {"relay": "relay-password", "reader": "reader-password"}


class ClusterMember(NatsServer):
    """A server on the deployed configuration, with ports and folder of this test."""

    def __init__(self, folder: Path, name: str, cluster_port: int, routes: str) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.name = name
        self._flags = ["--cluster", f"nats://{HOST}:{cluster_port}", "--routes", routes]
        self._flags += ["-a", HOST, "-p", str(self.port), "-m", str(self.monitor_port)]
        self.environment = {"NATS_NAME": name, "NATS_STORE": str(folder / "jetstream")} | {
            f"NATS_{user.upper()}_PASSWORD": password for user, password in _PASSWORDS.items()
        }

    def command(self) -> list[str]:
        program = super().command()[0]
        return [program, "-c", str(_CONFIG), *self._flags]

    def url_of(self, user: str) -> str:
        return f"nats://{user}:{_PASSWORDS[user]}@{HOST}:{self.port}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[ClusterMember]]:
    ports = free_ports(3)
    routes = ",".join(f"nats://{HOST}:{port}" for port in ports)
    members = [
        ClusterMember(tmp_path / str(number), f"nats-{number}", port, routes)
        for number, port in enumerate(ports, start=1)
    ]
    try:
        for member in members:
            member.spawn()  # none is healthy before most of them run
        for member in members:
            wait_until(member.is_ready, 60, member.log_tail)
        yield members
    finally:
        for member in members:
            member.stop()


async def _events_go_on_without_the_leader(cluster: list[ClusterMember]) -> None:
    address = Address(",".join(member.url_of("relay") for member in cluster))
    bus = JetStreamBus(Connection(lambda: address), replicas=3)
    try:
        await bus.create(STREAM)
        await fill(bus, 3)
        leader = await _leader(bus, cluster)
        await asyncio.to_thread(leader.kill)
        async with asyncio.timeout(60):
            while not await _published(bus, event(4), after="event-3"):
                await asyncio.sleep(0.05)  # refused at once while there is no connection: let it be made
        assert await bus.state(STREAM) == StreamState(Condition.FILLED, Stored(4, "event-4"))
    finally:
        await bus.close()


async def _leader(bus: JetStreamBus, cluster: list[ClusterMember]) -> ClusterMember:
    client = await bus.connection.client()
    info = await client.jetstream().stream_info(STREAM.name)
    assert info.config.num_replicas == 3
    assert info.cluster is not None
    return next(member for member in cluster if member.name == info.cluster.leader)


async def _published(bus: JetStreamBus, what: Event, *, after: str) -> bool:
    try:
        return await bus.publish(STREAM, what, after=after) in (Outcome.STORED, Outcome.DUPLICATE)
    except BrokerUnavailable:
        return False  # a new leader is being elected


def test_a_reader_may_ask_the_same_of_a_cluster_as_of_the_embedded_server() -> None:
    stated = _CONFIG.read_text()
    assert [request for request in READER_REQUESTS if f'"{request}"' not in stated] == []


# nats-py leaves the transports of connections that it did not get behind.
@pytest.mark.filterwarnings(
    r"ignore:Exception ignored in. <function StreamWriter\.__del__:pytest.PytestUnraisableExceptionWarning"
)
def test_events_go_on_when_the_stream_loses_its_leader(cluster: list[ClusterMember]) -> None:
    asyncio.run(_events_go_on_without_the_leader(cluster))


async def _reads_and_may_not_publish(member: ClusterMember) -> None:
    relay = await nats.connect(member.url_of("relay"))
    refused = asyncio.Event()

    async def note(error: Exception) -> None:
        if "permissions violation" in str(error).lower():
            refused.set()

    reader = await nats.connect(member.url_of("reader"), error_cb=note)
    try:
        events = relay.jetstream(timeout=30)
        await events.add_stream(name="podium-test", subjects=["podium.test.>"], num_replicas=3)
        await events.publish("podium.test.a", b"1")
        subscription = await reader.jetstream(timeout=30).pull_subscribe(
            "podium.test.>", durable="watcher", stream="podium-test"
        )
        (message,) = await subscription.fetch(1, timeout=10)
        await message.ack_sync()
        assert message.data == b"1"

        with pytest.raises(NatsTimeoutError):
            await reader.jetstream(timeout=0.5).publish("podium.test.a", b"forged")
        await asyncio.wait_for(refused.wait(), 10)
        assert (await events.stream_info("podium-test")).state.messages == 1
    finally:
        await reader.close()
        await relay.close()


def test_a_reader_reads_and_may_not_publish(cluster: list[ClusterMember]) -> None:
    asyncio.run(_reads_and_may_not_publish(cluster[1]))
