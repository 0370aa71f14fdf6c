"""Lines of a log that say how far a task has come."""

from __future__ import annotations

import pytest

from trainers.progress import Pace, duration, step_line


def test_a_step_is_told_with_its_total_and_what_is_left() -> None:
    logged = {"loss": 2.3148, "learning_rate": 2e-4, "num_tokens": 10420.0, "epoch": 0.1, "entropy": 1.0}
    line = step_line(3, {**logged, "steps": 45, "seconds_left": 80.0})
    assert line == "step 3/45  loss 2.315  lr 0.0002  10,420 tokens  1 min 20 s left"


def test_a_number_of_the_users_own_trainer_is_told_as_well() -> None:
    assert step_line(3, {"reward": 0.25}) == "step 3  reward 0.25"


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")]
)
def test_a_duration_reads_as_a_person_says_it(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_long_work_is_told_every_few_seconds_and_at_its_end() -> None:
    now, told = [0.0], []
    pace = Pace("scoring m:v1", 100, tell=told.append, clock=lambda: now[0])
    for done in range(10, 101, 10):
        now[0] += 2.0
        pace.at(done, "nll 1.5")
    assert told == [
        "scoring m:v1 30/100  nll 1.5  14 s left",
        "scoring m:v1 60/100  nll 1.5  8 s left",
        "scoring m:v1 90/100  nll 1.5  2 s left",
        "scoring m:v1 100/100  nll 1.5  took 20 s",
    ]


def test_steps_of_an_earlier_attempt_do_not_make_the_pace() -> None:
    now = [0.0]
    pace = Pace("steps", 30, clock=lambda: now[0])
    now[0] = 10.0
    assert pace.seconds_left(25, before=20) == pytest.approx(10.0)
