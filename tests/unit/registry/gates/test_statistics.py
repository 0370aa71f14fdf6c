"""The paired bootstrap: the same data, the same answer; the bound holds as often as it says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.gates.statistics import paired_difference


def draws(seed: int, n: int, mean: float) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(mean, 1.0) for _ in range(n)]


def test_the_same_differences_give_the_same_bound() -> None:
    data = draws(1, 50, 0.3)
    assert paired_difference(data, 0.95) == paired_difference(data, 0.95)


def test_no_differences_are_an_error() -> None:
    with pytest.raises(ValueError, match="no paired examples"):
        paired_difference([], 0.95)


def test_one_difference_bounds_itself() -> None:
    assert paired_difference([0.5], 0.95).lower == 0.5


@pytest.mark.parametrize("n", [20, 999, 1000, 5000])
def test_more_confidence_lowers_the_bound(n: int) -> None:
    data = draws(2, n, 0.5)
    bounds = [paired_difference(data, confidence).lower for confidence in (0.6, 0.9, 0.99)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] < paired_difference(data, 0.95).mean


def test_the_two_methods_agree_where_they_meet() -> None:
    data = draws(3, 1000, 0.1)
    normal, bootstrap = paired_difference(data, 0.95), paired_difference(data[:999], 0.95)
    assert normal.lower == pytest.approx(bootstrap.lower, abs=0.01)


def test_without_a_real_gain_the_bound_is_above_zero_about_as_often_as_it_may_be() -> None:
    wrong = sum(paired_difference(draws(seed, 60, 0.0), 0.95).lower > 0 for seed in range(60))
    assert wrong <= 6  # 3 are promised; a bootstrap of 60 differences leaves some play


def test_a_version_against_itself_shows_nothing() -> None:
    found = paired_difference([0.0, 0.0, 0.0], 0.975)
    assert (found.mean, found.lower, found.upper, found.p_value, found.n) == (0, 0, 0, 1, 3)
    assert paired_difference([0.0] * 1000, 0.975).p_value == 1


def test_a_gain_on_every_example_is_sure() -> None:
    found = paired_difference([1.0] * 50, 0.975)
    assert (found.mean, found.lower, found.upper) == (1, 1, 1)
    assert 0 < found.p_value < 0.002


def test_a_gain_on_a_few_examples_is_not() -> None:
    found = paired_difference([0.0] * 98 + [1.0, -1.0], 0.975)
    assert found.lower < 0 < found.upper
    assert found.p_value > 0.05


def test_a_loss_is_as_sure_as_a_gain_whichever_method_judges_it() -> None:
    for n in (500, 2000):
        data = draws(4, n, 0.08)
        gain, loss = paired_difference(data, 0.975), paired_difference([-each for each in data], 0.975)
        assert (loss.lower, loss.upper) == pytest.approx((-gain.upper, -gain.lower))
        assert gain.p_value == pytest.approx(loss.p_value)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=40))
@settings(max_examples=20, deadline=None)
def test_the_bounds_hold_the_mean_between_them(differences: list[float]) -> None:
    found = paired_difference(differences, 0.975)
    assert found.lower - 1e-9 <= found.mean <= found.upper + 1e-9
    assert 0 < found.p_value <= 1
