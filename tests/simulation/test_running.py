"""Claim, lease and end of runs: every run ends once, and a stale worker or child changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry.crashpoints import reached
from registry.store import run_attempts, session
from registry.store.session import Session
from tests.simulation.mutants import Patch, caught
from tests.simulation.running import play
from tests.simulation.schedules import seeds
from tests.simulation.world import ROUGH, Faults, Kill, World

POINTS = ("run.claimed", "run.ended", "run.finished")
_PAUSES = Faults(pause=0.02)


def test_in_fair_weather_each_run_succeeds_at_once() -> None:
    world = play()
    assert world.connection.execute("SELECT DISTINCT state, attempts FROM run").fetchall() == [
        ("succeeded", 1)
    ]


@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_any_point_ends_each_run_once(point: str) -> None:
    for count in (1, 2, 3):
        play(kill=Kill(point, count))


def test_a_death_in_a_takeover_leaves_the_run_to_the_next_one() -> None:
    deaths = 0
    for seed in seeds(8):
        world = play(seed, faults=Faults(pause=0.02), kill=Kill("run.taken_over"), workers=3)
        deaths += world.counts["run.taken_over"] > 0
    assert deaths


def test_random_faults_end_each_run_once() -> None:
    for seed in seeds(20):
        play(seed, faults=ROUGH)


def test_pauses_past_the_lease_let_nothing_stale_through() -> None:
    for seed in seeds(20):
        play(seed, faults=_PAUSES)


def test_a_cancelled_run_writes_nothing_more() -> None:
    for seed in seeds(15):
        play(seed, faults=ROUGH, cancels=True)


# The oracle notices when they are broken.


def _check_no_epoch(patch: Patch) -> None:
    patch.setattr(session, "check_authority", lambda *_: None)


def _publish_before_the_end(patch: Patch) -> None:
    """The result becomes a version in one transaction, and the run ends in another."""
    finish = run_attempts.finish

    def in_two(session: Session, run: str, outputs: object, result: object) -> object:
        with session.writing() as transaction:
            found = run_attempts.run_rows.load(transaction, run)
            for output, files in outputs:  # type: ignore[attr-defined]
                run_attempts._store_output(session, transaction, found, output, files)
        reached("mutant.published")
        return finish(session, run, outputs, result)  # type: ignore[arg-type]

    patch.setattr(run_attempts, "finish", in_two)


@pytest.mark.parametrize(("mutate", "faults"), [(_check_no_epoch, _PAUSES), (_publish_before_the_end, ROUGH)])
def test_a_mutant_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[Patch], None], faults: Faults
) -> None:
    mutate(monkeypatch)

    def schedule(seed: int) -> World:
        return play(seed, faults=faults)

    caught(schedule, range(200))
