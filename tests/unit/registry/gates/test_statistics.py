"""The paired bootstrap: the same data, the same answer; the bound holds as often as it says."""

from __future__ import annotations

import random

import pytest

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
