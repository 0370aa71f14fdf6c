"""Each rule of a rollout, broken once: the simulation must see it, and see nothing where none is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import rolling_mutants as mutants
from tests.simulation.mutants import caught
from tests.simulation.rolling import play
from tests.simulation.rolling_fixture import nothing_of_serving_takes_real_time
from tests.simulation.schedules import seeds
from tests.simulation.serving import CALM, Trouble
from tests.simulation.world import Faults, World

_outside = pytest.fixture(scope="module", autouse=True)(nothing_of_serving_takes_real_time)

SLOW = Faults(delay=0.02)  # so that what comes in the wrong order is met by somebody


def _play(seed: int, faults: Faults = SLOW, trouble: Trouble = CALM) -> World:
    """Many clients, and a proxy that asks nobody else when a replica refuses."""
    world, _ = play(seed, faults=faults, trouble=trouble, clients=16, tries=1)
    return world


def test_nothing_is_seen_where_no_rule_is_broken() -> None:
    for seed in seeds(8):
        _play(seed)


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.drain_what_the_proxy_still_sends_to,
        mutants.flip_before_every_replica_has_it,
        mutants.report_live_before_every_replica_has_the_map,
        mutants.route_before_the_probe,
        mutants.route_to_what_has_no_map,
        mutants.stop_without_draining,
        mutants.unload_what_still_answers,
    ],
)
def test_a_broken_rule_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    caught(_play, range(100))


def test_a_replica_without_its_fence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants.take_maps_from_anybody(monkeypatch)
    caught(lambda seed: _play(seed, Faults(pause=0.004), Trouble(late=0.03)), range(100))
