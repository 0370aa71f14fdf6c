"""Pipelines of twelve steps while what they need is killed: each ends right, no finished step runs again."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from registry.settings import Settings
from tests.common.casualties import Embedded, Scene, Servers
from tests.common.postgres import PostgresServer
from tests.common.registries import Place
from tests.common.services import NatsServer, temporary_folder
from tests.common.waiting import wait_until


@pytest.fixture
def embedded(sqlite_place: Place, tmp_path: Path) -> Iterator[Scene]:
    made = Embedded(sqlite_place, tmp_path)
    yield made
    made.close()


@pytest.fixture
def servers(tmp_path: Path, nats_server: NatsServer) -> Iterator[Scene]:
    folder = temporary_folder("postgres")
    postgres = PostgresServer(folder)
    try:
        postgres.start()
        settings = Settings(home=tmp_path / "home", url=SecretStr(postgres.database()), actor="ada")
        place = Place(settings)
        made = Servers(place, tmp_path, postgres, nats_server)
        yield made
        made.close()
        place.close()
    finally:
        postgres.stop()
        shutil.rmtree(folder)


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("scene", ["embedded", "servers"], indirect=True)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(10, marks=pytest.mark.timeout(300)),
        pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(880)]),
    ],
)
def test_whatever_is_killed_each_run_ends_right_and_no_finished_step_runs_again(
    scene: Scene, kills: int
) -> None:
    chance = random.Random(kills)
    while len(scene.killed) < kills:
        if len(scene.living()) < 3:
            scene.queue()
        time.sleep(chance.uniform(0.2, 1.2))
        scene.kill(chance)
    wait_until(lambda: not scene.living(), 240, scene.what_went_wrong)
    scene.check()
