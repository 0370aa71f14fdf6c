"""The oracle notices when promotion or relay are broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import mutants
from tests.simulation.mutants import Patch, caught
from tests.simulation.relaying import play, stream_trouble
from tests.simulation.world import ROUGH, Faults, World

_PAUSES = Faults(pause=0.05, forget_ids=0.5, publish_late=0.05)


def rough(seed: int) -> World:
    return play(seed, faults=ROUGH)


def paused(seed: int) -> World:
    return play(seed, faults=_PAUSES, relays=3)


def troubled(seed: int) -> World:
    return play(seed, faults=_PAUSES, relays=3, trouble=stream_trouble)


@pytest.mark.parametrize(
    ("mutate", "schedule"),
    [
        (mutants.mark_before_the_acknowledgement, rough),
        (mutants.publish_without_naming_the_predecessor, paused),
        (mutants.publish_what_a_look_did_not_find, paused),
        (mutants.relay_without_the_lease, troubled),
        (mutants.take_a_stream_that_is_further_for_a_lost_one, rough),
        (mutants.number_events_before_their_transaction, rough),
        (mutants.write_the_event_after_the_commit, rough),
        (mutants.move_without_checking_the_expectation, rough),
    ],
)
def test_a_mutant_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[Patch], None], schedule: Callable[[int], World]
) -> None:
    mutate(monkeypatch)
    caught(schedule, range(400))
