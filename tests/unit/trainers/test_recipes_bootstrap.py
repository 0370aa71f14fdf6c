"""The paired test in an evaluation report."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.recipes.bootstrap import paired_bootstrap

SCORES = st.lists(st.floats(-10, 10), min_size=1, max_size=40)


def test_a_model_against_itself_shows_nothing() -> None:
    found = paired_bootstrap([0.0, 1.0, 1.0], [0.0, 1.0, 1.0])
    assert (found.difference, found.low, found.high, found.p_value, found.n) == (0, 0, 0, 1, 3)


def test_a_gain_on_every_example_is_sure() -> None:
    found = paired_bootstrap([1.0] * 50, [0.0] * 50)
    assert (found.difference, found.low, found.high) == (1, 1, 1)
    assert 0 < found.p_value < 0.001


def test_a_gain_on_a_few_examples_is_not() -> None:
    found = paired_bootstrap([1.0] * 52 + [0.0] * 48, [1.0] * 50 + [0.0] * 48 + [0.0, 1.0])
    assert found.low < 0 < found.high
    assert found.p_value > 0.05


def test_pairing_finds_what_spread_would_hide() -> None:
    hard_and_easy = [float(n) for n in range(100)]
    found = paired_bootstrap([score + 0.1 for score in hard_and_easy], hard_and_easy)
    assert found.low == pytest.approx(0.1)


def test_the_same_scores_give_the_same_numbers() -> None:
    ours, theirs = [0.1, 0.9, 0.4, 0.7], [0.2, 0.3, 0.5, 0.1]
    assert paired_bootstrap(ours, theirs) == paired_bootstrap(ours, theirs)


def test_many_examples_are_resampled_in_pieces() -> None:
    ours = [float(n % 2) for n in range(50_000)]
    found = paired_bootstrap(ours, [0.0] * 50_000)
    assert found.low == pytest.approx(0.5, abs=0.01)


@given(SCORES)
@settings(max_examples=20, deadline=None)
def test_the_interval_holds_the_difference_and_turns_with_the_order(scores: list[float]) -> None:
    zero = [0.0] * len(scores)
    there, back = paired_bootstrap(scores, zero), paired_bootstrap(zero, scores)
    assert there.low - 1e-9 <= there.difference <= there.high + 1e-9
    assert back.low == pytest.approx(-there.high)
    assert there.p_value == back.p_value
