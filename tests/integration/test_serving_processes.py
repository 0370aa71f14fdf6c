"""Controllers, replicas and the proxy as real processes, killed by SIGKILL while clients ask on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from registry.deployments import TERMINAL, ReplicaStatus, RolloutState
from registry.protocol import Registry
from serving.child import Child
from serving.haproxy import PROXY_LOG, find_haproxy
from tests.common.clients import Clients
from tests.common.registries import Place
from tests.common.serving import World
from tests.common.waiting import wait_until

_SCRIPT = Path(__file__).parents[1] / "common" / "serving_process.py"
_POINTS = (
    "rollout.begun",
    "rollout.staged",
    "rollout.checked",
    "rollout.loaded",
    "rollout.probed",
    "rollout.flipped",
    "rollout.applied",
    "rollout.finished",
    "rollout.unloaded",
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class Controllers:
    """A process that runs the controllers, started again whenever it was killed."""

    def __init__(self, place: Place, home: Path, scratch: Path) -> None:
        self._variables = place.environment
        self._log = scratch / "controllers.log"
        self.folder = home / "serving" / "router"
        self.replicas = 1
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, crash_at: str = "") -> None:
        environment = os.environ | self._variables | {"PYTHONPATH": str(_SCRIPT.parents[2])}
        environment |= {"SERVING_TEST_REPLICAS": str(self.replicas)}
        if crash_at:
            environment["PODIUM_CRASH_AT"] = crash_at
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT)], env=environment, stdout=log, stderr=log
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def died(self) -> bool:
        return self._process is not None and self._process.poll() == -signal.SIGKILL

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(40)
            self._process.kill()
            self._process.wait()

    def end_without_engine(self) -> None:
        """Kill it, as a power cut of the controller alone would; its engine goes on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def replica(self, index: int) -> Child:
        return Child(self.folder / f"replica-{index}")

    def proxy(self) -> Child:
        return Child(self.folder / "proxy", PROXY_LOG)

    def kill_all(self) -> None:
        for folder in self.folder.glob("replica-*"):
            Child(folder).kill_all()
        self.proxy().kill_all()

    def log(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.fixture
def world(tmp_path: Path, registry: Registry) -> World:
    made = World(tmp_path, registry)
    made.publish_base()
    return made


@pytest.fixture
def controllers(place: Place, registry: Registry, tmp_path: Path) -> Iterator[Controllers]:
    made = Controllers(place, registry.settings.home, tmp_path)
    yield made
    made.end()
    made.kill_all()


def address(world: World) -> str:
    """Where clients ask."""
    found = world.registry.deployments.replicas("router")[0].address
    assert found is not None
    return found


def ended(world: World, generation: int) -> bool:
    found = world.registry.deployments.of_promotion("ticket-router", "production", generation)
    return bool(found) and found[0].state in TERMINAL


needs_proxy = pytest.mark.skipif(find_haproxy() is None, reason="HAProxy is not installed")
on_one_machine = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=needs_proxy)])
def test_controllers_killed_at_every_point_of_a_rollout_drop_no_answer(
    world: World, controllers: Controllers, replicas: int
) -> None:
    controllers.replicas = replicas
    controllers.start()
    first = world.promote(world.publish(0))
    wait_until(lambda: ended(world, first), 60, controllers.log)
    controllers.end_without_engine()
    asyncio.run(_kill_at_each_point(world, controllers, address(world)))
    _check(world)


async def _kill_at_each_point(world: World, controllers: Controllers, endpoint: str) -> None:
    async with Clients(endpoint, "ticket-router", count=4) as clients:
        for number, point in enumerate(_POINTS, start=1):
            controllers.start(crash_at=point)
            generation = world.promote(world.publish(number))
            await asyncio.to_thread(
                wait_until, lambda g=generation: controllers.died() or ended(world, g), 60, controllers.log
            )
            # What comes after the end of a rollout is reached a moment later.
            await asyncio.to_thread(wait_until, controllers.died, 30, controllers.log)
            controllers.start()
            await asyncio.to_thread(wait_until, lambda g=generation: ended(world, g), 60, controllers.log)
            controllers.end_without_engine()
    assert len(_judge(clients)) > len(_POINTS) // 2


@needs_proxy
@on_one_machine
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_replica_or_proxy_killed_with_the_controller_at_every_point_comes_back(
    world: World, controllers: Controllers, first: int
) -> None:
    controllers.replicas = 2
    controllers.start()
    begun = world.promote(world.publish(0))
    wait_until(lambda: ended(world, begun), 60, controllers.log)
    controllers.end_without_engine()
    endpoint = address(world)
    asyncio.run(_kill_two_at_each_point(world, controllers, endpoint, first))
    _check(world)
    assert address(world) == endpoint


async def _kill_two_at_each_point(world: World, controllers: Controllers, endpoint: str, first: int) -> None:
    """At each second point it is the proxy: without it nobody is answered until it is back."""
    for number, point in enumerate(_POINTS, start=1):
        is_proxy = (number + first) % 2 == 0
        victim = controllers.proxy() if is_proxy else controllers.replica(number % 4 // 2)
        async with Clients(endpoint, "ticket-router", count=4, streams=False) as clients:
            controllers.start(crash_at=point)
            generation = world.promote(world.publish(number))
            await asyncio.to_thread(wait_until, controllers.died, 60, controllers.log)
            assert victim.record is not None and victim.record.pid is not None
            os.kill(victim.record.pid, signal.SIGKILL)
            controllers.start()
            await asyncio.to_thread(
                wait_until, lambda g=generation: _is_whole(world, endpoint, g), 60, controllers.log
            )
        controllers.end_without_engine()
        if is_proxy:
            clients.asked = [asked for asked in clients.asked if asked.status == 200]
        _judge(clients)


def _is_whole(world: World, endpoint: str, generation: int) -> bool:
    """It is live, by both replicas and through the proxy."""
    phases = [_status(world, index).phase for index in (0, 1)]
    return ended(world, generation) and phases == ["ready", "ready"] and _answers(endpoint) == 200


def _judge(clients: Clients) -> set[str | None]:
    """Nobody was failed, and each version answered in its own way; the versions that answered."""
    bad = [asked for asked in clients.asked if asked.status != 200 or asked.error]
    assert not bad, bad[:3]
    answers: dict[str | None, set[str]] = {}
    for asked in clients.asked:
        assert asked.models == {asked.version}
        answers.setdefault(asked.version, set()).add(asked.text)
    assert all(len(texts) == 1 for texts in answers.values()), "a version answered in two ways"
    return set(answers)


def _check(world: World) -> None:
    history = world.registry.promotions.history("ticket-router", "production")
    assert Counter(r.target.generation for r in world.rollouts()) == Counter(p.generation for p in history)
    assert {r.state for r in world.rollouts()} == {RolloutState.LIVE}
    kinds = Counter(kind for kind, _ in world.events())
    assert kinds == {"started": len(history), "live": len(history)}


def test_a_killed_engine_is_replaced_and_serves_the_same_version_on_the_same_port(
    world: World, controllers: Controllers
) -> None:
    controllers.start()
    first = world.promote(world.publish(0))
    wait_until(lambda: ended(world, first), 60, controllers.log)
    wait_until(
        lambda: "ticket-router:v1" in _status(world, 0).models, 60, controllers.log
    )  # it is told a bit later
    before = _status(world, 0)
    record = controllers.replica(0).record
    assert record is not None and record.pid is not None
    os.kill(record.pid, signal.SIGKILL)

    def is_back() -> bool:
        seen = world.registry.deployments.replicas("router")[0]
        return seen.boot not in (None, before.boot) and seen.models == before.models

    wait_until(is_back, 60, controllers.log)
    after = world.registry.deployments.replicas("router")[0]
    assert after.endpoint == before.endpoint
    second = world.promote(world.publish(1))
    wait_until(lambda: ended(world, second), 60, controllers.log)
    assert world.rollouts()[-1].state is RolloutState.LIVE


def test_at_sigterm_controllers_stop_their_engine_and_hand_back_the_lease(
    world: World, controllers: Controllers
) -> None:
    controllers.start()
    first = world.promote(world.publish(0))
    wait_until(lambda: ended(world, first), 60, controllers.log)
    begin = time.monotonic()
    controllers.end()
    assert time.monotonic() - begin < 20
    assert not controllers.replica(0).is_alive()
    assert world.registry.leases.get("controller/router") is None


@needs_proxy
@on_one_machine
def test_killed_replicas_and_another_base_fail_nobody_where_two_replicas_serve(
    world: World, controllers: Controllers
) -> None:
    controllers.replicas = 2
    controllers.start()
    first = world.promote(world.publish(0, base=None))
    wait_until(lambda: ended(world, first), 60, controllers.log)
    asyncio.run(_kill_and_move(world, controllers, address(world)))


async def _kill_and_move(world: World, controllers: Controllers, endpoint: str) -> None:
    # What a killed replica has begun to answer is lost with it; that no other answer is, shows with clients
    # that do not stream: their requests are asked again of the other replica.
    async with Clients(endpoint, "ticket-router", count=6, streams=False) as clients:
        await asyncio.to_thread(_kill_each_replica, world, controllers)
        second = world.promote(world.publish(1, base=None))
        await asyncio.to_thread(wait_until, lambda: ended(world, second), 60, controllers.log)
        await asyncio.to_thread(_move_base, world, controllers)
        third = world.promote(world.publish(2, base=None))
        await asyncio.to_thread(wait_until, lambda: ended(world, third), 60, controllers.log)
    assert _judge(clients) >= {"ticket-router:v1", "ticket-router:v2", "ticket-router:v3"}
    assert address(world) == endpoint
    assert {r.state for r in world.rollouts()} == {RolloutState.LIVE}


def _kill_each_replica(world: World, controllers: Controllers) -> None:
    for index in (0, 1):
        wait_until(lambda i=index: "ticket-router:v1" in _status(world, i).models, 60, controllers.log)
        before = _status(world, index)
        record = controllers.replica(index).record
        assert record is not None and record.pid is not None
        os.kill(record.pid, signal.SIGKILL)
        wait_until(
            lambda i=index, b=before: (
                _status(world, i).boot not in (None, b.boot) and _status(world, i).models == b.models
            ),
            60,
            controllers.log,
        )


def _status(world: World, index: int) -> ReplicaStatus:
    return next(r for r in world.registry.deployments.replicas("router") if r.index == index)


def _move_base(world: World, controllers: Controllers) -> None:
    base = world.publish_base(seed=8)

    def is_moved() -> bool:
        table = world.registry.deployments.routes("router")
        opened = world.registry.deployments.open_rollouts("router")
        return table.base is not None and table.base.ref == base.ref and not opened

    wait_until(is_moved, 60, controllers.log)


@needs_proxy
@on_one_machine
def test_a_killed_proxy_comes_back_on_its_port_also_without_a_controller_in_between(
    world: World, controllers: Controllers
) -> None:
    controllers.replicas = 2
    controllers.start()
    first = world.promote(world.publish(0))
    wait_until(lambda: ended(world, first), 60, controllers.log)
    endpoint = address(world)
    for meanwhile in (lambda: None, controllers.end_without_engine):
        meanwhile()
        before = controllers.proxy().record
        assert before is not None and before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        if not controllers.is_running:
            controllers.start()
        wait_until(lambda: _answers(endpoint) == 200, 60, controllers.log)
    assert address(world) == endpoint
    assert [_status(world, index).phase for index in (0, 1)] == ["ready", "ready"]


def _answers(endpoint: str) -> int:
    body = {"model": "ticket-router", "prompt": "x"}
    try:
        return httpx.post(f"{endpoint}/v1/completions", json=body, trust_env=False).status_code
    except httpx.HTTPError:
        return 0
