"""How sure one may be that one version is better than another on the same examples."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from statistics import NormalDist, fmean, stdev

_RESAMPLES = 2000
_LARGE = 1000  # from this many examples on, the mean's distribution is normal for all that matters here


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of paired differences, with two bounds, each of which holds at a one-sided confidence."""

    mean: float
    lower: float
    upper: float
    p_value: float  # two-sided: of a mean this far from 0 by luck
    n: int


def fewest_pairs(confidence: float) -> int:
    """How many pairs there must be before any test of them can be that sure.

    All ``n`` differences have one sign by chance with the probability 2 ** -n (the sign test).
    """
    return ceil(log2(1 / (1 - confidence)) - 1e-9)


def paired_difference(differences: Sequence[float], confidence: float) -> PairedDifference:
    """Bootstrap the mean of ``differences`` (Efron and Tibshirani 1993, percentile interval).

    Examples are drawn with replacement, each with both of its scores, so what makes an example hard for both
    versions cancels out. The resampling is seeded by nothing but how many there are: the same evidence always
    gives the same verdict. Both bounds together hold at ``2 * confidence - 1``.

    Raises:
        ValueError: there are no differences.
    """
    n = len(differences)
    if n == 0:
        raise ValueError("no paired examples")
    if n >= _LARGE:
        return _by_normal(differences, confidence)
    generator = random.Random(n)
    means = sorted(sum(generator.choices(differences, k=n)) / n for _ in range(_RESAMPLES))
    beyond = int((1 - confidence) * _RESAMPLES)
    # One is added so that a finite number of draws never claims a probability of zero.
    tail = (min(bisect_right(means, 0), _RESAMPLES - bisect_left(means, 0)) + 1) / (_RESAMPLES + 1)
    return PairedDifference(fmean(differences), means[beyond], means[-1 - beyond], min(1.0, 2 * tail), n)


def _by_normal(differences: Sequence[float], confidence: float) -> PairedDifference:
    n, mean = len(differences), fmean(differences)
    error = stdev(differences) / n**0.5
    far = NormalDist().inv_cdf(confidence) * error
    if error == 0:
        return PairedDifference(mean, mean, mean, 1.0 if mean == 0 else 0.0, n)
    p_value = 2 * NormalDist().cdf(-abs(mean) / error)
    return PairedDifference(mean, mean - far, mean + far, p_value, n)
