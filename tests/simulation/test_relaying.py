"""Promotion and relay: every crash point, then random schedules."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.simulation import oracle
from tests.simulation.actors import adopt, relay, writer
from tests.simulation.beginning import beginning
from tests.simulation.oracle import Acknowledged
from tests.simulation.relaying import play, stream_trouble
from tests.simulation.schedules import seeds
from tests.simulation.world import ROUGH, Faults, Kill, World
from triggers.errors import StreamAhead

PROMOTION_POINTS = ("promotion.moved", "promotion.recorded", "promotion.committed")
RELAY_POINTS = ("relay.claimed", "relay.created", "relay.published", "relay.marked")


def test_in_fair_weather_each_move_is_one_event_in_its_order() -> None:
    world = play()
    assert oracle.stream(world)[-1].sequence > 10
    assert {*PROMOTION_POINTS, *RELAY_POINTS} <= set(world.counts)


@pytest.mark.parametrize("point", PROMOTION_POINTS + RELAY_POINTS)
def test_a_death_at_any_point_and_time_loses_and_repeats_nothing(point: str) -> None:
    reachable = play().counts[point]
    for count in range(1, reachable + 1):
        assert play(kill=Kill(point, count)).counts[point] >= count


def test_a_death_while_a_lost_stream_is_replaced_loses_nothing() -> None:
    async def lose(world: World) -> None:
        await asyncio.sleep(0.1)
        world.lose_stream()

    for point in ("relay.begun", "relay.created", "relay.published"):
        for count in (1, 2):
            play(kill=Kill(point, count), trouble=lose)


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    first, second = (play(7, faults=ROUGH, trouble=stream_trouble) for _ in range(2))
    assert first.log == second.log


def test_random_faults_lose_and_repeat_nothing() -> None:
    for seed in seeds(200):
        play(seed, faults=ROUGH)


def test_a_stream_that_loses_events_is_filled_again_under_random_faults() -> None:
    for seed in seeds(100):
        play(seed, faults=ROUGH, trouble=stream_trouble)


def test_long_pauses_of_leaders_leave_the_stream_in_order() -> None:
    pauses = Faults(pause=0.05, forget_ids=0.5, publish_late=0.05)
    for seed in seeds(80):
        play(seed, faults=pauses, relays=3)


def test_what_is_marked_as_relayed_has_been_published_at_every_moment() -> None:
    async def watch(world: World) -> None:
        for _ in range(200):
            await asyncio.sleep(0.002)
            oracle.check_mark(world)

    for seed in seeds(25):
        play(seed, faults=replace(ROUGH, pause=0), trouble=watch)


def test_a_restored_database_stops_the_relay_until_a_person_decides() -> None:
    for seed in seeds(40):
        _restore(seed)


def test_so_does_one_that_was_restored_to_before_its_stream_began() -> None:
    for seed in seeds(6):
        _restore(seed, begins_anew=True)


def _restore(seed: int, *, begins_anew: bool = False) -> None:
    world = World(beginning(), seed=seed, faults=Faults(broker_away=0.02, crash=0.02))
    kept, lost = Acknowledged(), Acknowledged()

    async def main() -> None:
        world.start("relay", relay(), expects=StreamAhead)
        world.start("early", writer(kept, 4))
        await world.until(lambda: world.ended(["early"]) and oracle.relayed(world), "a relayed beginning")
        image, events = world.backup(), len(oracle.outbox(world))
        if begins_anew:
            world.cut_stream(1)
        world.start("lost", writer(lost, 4))
        await world.until(lambda: world.ended(["lost"]) and oracle.relayed(world), "what will be lost")
        newest, ahead = world.stream(), oracle.stream(world)
        assert newest.incarnation == 1 + begins_anew
        world.restore(image)
        world.start("late", writer(kept, 4))
        await world.until(lambda: world.ended(["late"]), "moves after the restore")
        await asyncio.sleep(5 * world.term)
        if begins_anew or len(ahead) > events:
            assert oracle.stream(world, newest) == ahead, world.story()
            world.heal()
            world.start("admin", adopt)
        world.heal()
        await world.until(lambda: oracle.relayed(world), "all events in a stream of their own")

    world.run(main())
    oracle.check_promotions(world, kept)
    oracle.check_streams(world, restored=True)
