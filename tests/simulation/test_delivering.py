"""Deliveries: nothing lost, effects once, in order; whatever dies or pauses on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.delivering import play
from tests.simulation.relaying import stream_trouble
from tests.simulation.schedules import reachable, seeds
from tests.simulation.world import ROUGH, Faults, Kill

POINTS = ("delivery.recorded", "delivery.claimed", "delivery.handled", "delivery.ended")


def test_in_fair_weather_each_event_is_handled_once_in_order() -> None:
    world = play()
    assert set(POINTS) <= set(world.counts)


@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_any_point_loses_no_delivery_and_repeats_no_effect(point: str) -> None:
    for count in reachable(play().counts[point]):
        play(kill=Kill(point, count))


def test_random_faults_lose_no_delivery_and_repeat_no_effect() -> None:
    for seed in seeds(40):
        play(seed, faults=ROUGH)


def test_without_pauses_calls_outside_stay_in_order_too() -> None:
    for seed in seeds(20):
        play(seed, faults=replace(ROUGH, pause=0.0))


def test_replays_and_new_tries_are_deliveries_of_their_own() -> None:
    for seed in seeds(20):
        play(seed, faults=ROUGH, replays=3)


def test_a_lost_stream_gives_no_handler_an_event_again() -> None:
    for seed in seeds(20):
        play(seed, faults=ROUGH, trouble=stream_trouble)


def test_a_leader_that_pauses_past_its_lease_repeats_no_effect() -> None:
    for seed in seeds(25):
        play(seed, faults=Faults(pause=0.03, deliver_twice=0.1), consumers=3)
