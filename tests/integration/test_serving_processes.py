"""Controllers in processes of their own, killed by SIGKILL at each point of a rollout, under clients."""

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

import pytest

from registry.deployments import TERMINAL, RolloutState
from registry.protocol import Registry
from serving.child import Child
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
        self.replica = home / "serving" / "router" / "replica-0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, crash_at: str = "") -> None:
        environment = os.environ | self._variables | {"PYTHONPATH": str(_SCRIPT.parents[2])}
        if crash_at:
            environment["PODIUM_CRASH_AT"] = crash_at
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT)], env=environment, stdout=log, stderr=log
            )

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
    Child(made.replica).kill_all()


def ended(world: World, generation: int) -> bool:
    found = world.registry.deployments.of_promotion("ticket-router", "production", generation)
    return bool(found) and found[0].state in TERMINAL


def test_controllers_killed_at_every_point_of_a_rollout_drop_no_answer(
    world: World, controllers: Controllers
) -> None:
    controllers.start()
    first = world.promote(world.publish(0))
    wait_until(lambda: ended(world, first), 60, controllers.log)
    endpoint = world.registry.deployments.replicas("router")[0].endpoint
    assert endpoint is not None
    controllers.end_without_engine()
    asyncio.run(_kill_at_each_point(world, controllers, endpoint))
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
    bad = [asked for asked in clients.asked if asked.status != 200 or asked.error]
    assert not bad, bad[:3]
    answers: dict[str | None, set[str]] = {}
    for asked in clients.asked:
        assert asked.models == {asked.version}
        answers.setdefault(asked.version, set()).add(asked.text)
    assert all(len(texts) == 1 for texts in answers.values()), "a version answered in two ways"
    assert len(answers) > len(_POINTS) // 2


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
    before = world.registry.deployments.replicas("router")[0]
    record = Child(controllers.replica).record
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
    assert not Child(controllers.replica).is_alive()
    assert world.registry.leases.get("controller/router") is None
