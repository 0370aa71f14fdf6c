"""Rollouts: every crash point, then random schedules of promotions, kills, pauses and lost or late calls."""

from __future__ import annotations

import pytest

from tests.simulation.rolling import play
from tests.simulation.rolling_fixture import nothing_of_serving_takes_real_time
from tests.simulation.schedules import reachable, seeds
from tests.simulation.serving import TROUBLED
from tests.simulation.world import Faults, Kill

_outside = pytest.fixture(scope="module", autouse=True)(nothing_of_serving_takes_real_time)

POINTS = (
    "replica.started",
    "rollout.begun",
    "rollout.staged",
    "rollout.checked",
    "rollout.loaded",
    "rollout.probed",
    "rollout.flipped",
    "rollout.applied",
    "rollout.routed",
    "rollout.finished",
    "rollout.failed",
    "rollout.unloaded",
)
ROUGH = Faults(crash=0.01, pause=0.002, database_away=0.005, commit_unknown=0.005)


def test_in_fair_weather_nobody_is_failed() -> None:
    world, site = play(3)
    assert len(site.requests) > 50
    assert not [request for request in site.requests if request.status != 200]
    assert {*POINTS} - {"rollout.unloaded"} <= set(world.counts)


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    (first, _), (second, _) = (play(7, faults=ROUGH, trouble=TROUBLED) for _ in range(2))
    assert first.log == second.log


@pytest.mark.parametrize("point", POINTS)
def test_a_controller_that_dies_at_any_point_is_continued(point: str) -> None:
    world, _ = play(3)
    for count in reachable(world.counts[point], most=2):
        play(3, kill=Kill(point, count))


def test_random_faults_fail_nobody_and_every_promotion_ends() -> None:
    for seed in seeds(30):
        play(seed, faults=ROUGH, trouble=TROUBLED)


def test_one_replica_behind_a_proxy_is_as_safe_as_two() -> None:
    for seed in seeds(20, first=1000):
        play(seed, replicas=1, faults=ROUGH, trouble=TROUBLED)
