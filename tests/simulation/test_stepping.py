"""Pipelines: whatever dies, pauses, is taken over or forked, no finished step is done again or changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry.runs import ENDED
from registry.steps import settled
from registry.store import run_attempts, session, steps
from registry.store.steps import StoredSteps
from tests.simulation import stepping
from tests.simulation.mutants import Patch, caught
from tests.simulation.schedules import reachable, seeds
from tests.simulation.stepping import play
from tests.simulation.world import ROUGH, Faults, Kill, World
from trainers.driving import Driver
from trainers.places import Branch

POINTS = ("run.claimed", "run.ended", "run.finished", "step.asked", "step.recorded", "step.settled")
_PAUSES = Faults(pause=0.02, skew=20.0)


def test_in_fair_weather_each_step_is_done_once() -> None:
    world = play(pipelines=1)
    assert set(POINTS) - {"step.settled"} <= set(world.counts)
    attempts = world.connection.execute("SELECT DISTINCT attempts FROM run WHERE source IS NULL")
    assert sorted(attempts) == [(0,), (1,)]  # 0: what a driver did itself


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    first, second = (play(3, faults=ROUGH, acts=3) for _ in range(2))
    assert first.log == second.log


@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_any_point_costs_no_finished_step(point: str) -> None:
    for count in reachable(play().counts[point], most=1):
        play(kill=Kill(point, count))


@pytest.mark.parametrize("point", ["run.taken_over", "step.repeated"])
def test_a_death_while_work_is_taken_up_again_leaves_it_to_the_next_one(point: str) -> None:
    deaths = 0
    for seed in seeds(12):
        deaths += play(seed, faults=Faults(pause=0.02, crash=0.01), kill=Kill(point), acts=2).counts[point]
        if deaths:
            return
    raise AssertionError(f"nothing came to {point}")


def test_random_faults_cost_no_finished_step() -> None:
    for seed in seeds(4):
        play(seed, faults=ROUGH)


def test_who_takes_over_recovers_and_forks_gets_what_was_done() -> None:
    for seed in seeds(5):
        play(seed, faults=ROUGH, acts=4)


def test_pauses_past_the_lease_and_wrong_clocks_let_nothing_stale_through() -> None:
    for seed in seeds(4):
        play(seed, faults=_PAUSES, acts=2, workers=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("faults", [ROUGH, _PAUSES], ids=["rough", "paused"])
def test_many_more_schedules(faults: Faults) -> None:
    for seed in seeds(100, first=1000):
        play(seed, faults=faults, acts=seed % 5, workers=2 + seed % 2)


# The oracle notices when they are broken.


def check_no_epoch(patch: Patch) -> None:
    """A driver, step or worker that was thought dead still writes."""
    patch.setattr(session, "check_authority", lambda *_: None)


def repeat_what_is_finished(patch: Patch) -> None:
    """To recover is to do all of it again."""
    patch.setattr(run_attempts, "to_repeat", lambda found: [s for s in found if s.state in ENDED])
    again = steps._REPEAT.text.replace(
        "NOT IN ('queued', 'running', 'succeeded')", "NOT IN ('queued', 'running')"
    )
    assert again != steps._REPEAT.text
    patch.setattr(steps, "_REPEAT", steps.sql(again))


def look_whether_it_is_made_and_no_more(patch: Patch) -> None:
    """Single flight by an existence check: whoever finds nothing does it."""
    begin = World.__post_init__

    def without_the_index(self: World) -> None:
        begin(self)
        self.connection.execute("DROP INDEX run_flight")

    patch.setattr(World, "__post_init__", without_the_index)
    patch.setattr(StoredSteps, "_flight", lambda *_: None)


def number_steps_as_they_come(patch: Patch) -> None:
    """Identity by order alone: which branch asks is not part of a place."""
    patch.setattr(Branch, "below", lambda self, name: self)


def keep_all_that_is_done_in_a_fork(patch: Patch) -> None:
    """What came after the step that is done anew is kept with what came before."""
    patch.setattr(stepping, "kept", lambda found, start: [s for s in settled(found) if s.id != start.id])


def fork_by_position(patch: Patch) -> None:
    """A fork takes over all that was asked for before its start, done or not."""
    patch.setattr(stepping, "kept", lambda found, start: found[: found.index(start)])


def take_over_without_a_fence(patch: Patch) -> None:
    """Who takes a run from somebody who lives works under the same epoch."""
    patch.setattr(run_attempts, "_FENCE", steps.sql("UPDATE lease SET holder = :holder WHERE name = :name"))
    patch.setattr(run_attempts, "_FREE", steps.sql("UPDATE lease SET holder = holder WHERE name = :name"))


def draw_anew(patch: Patch) -> None:
    """Chance is not journalled."""
    patch.setattr(Driver, "note", lambda self, name, value: value)


def rough(seed: int) -> World:
    return play(seed, faults=ROUGH, acts=4)


def paused(seed: int) -> World:
    return play(seed, faults=_PAUSES, acts=2, workers=3)


@pytest.mark.parametrize(
    ("mutate", "schedule", "first"),  # the schedules before the first are known not to come to it
    [
        (check_no_epoch, paused, 2),
        (repeat_what_is_finished, rough, 0),
        (look_whether_it_is_made_and_no_more, rough, 0),
        (number_steps_as_they_come, rough, 0),
        (keep_all_that_is_done_in_a_fork, rough, 4),
        (fork_by_position, rough, 2),
        (take_over_without_a_fence, rough, 0),
        (draw_anew, rough, 0),
    ],
)
def test_a_mutant_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[Patch], None],
    schedule: Callable[[int], World],
    first: int,
) -> None:
    mutate(monkeypatch)
    caught(schedule, range(first, 100))
