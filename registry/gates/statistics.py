"""How sure one may be that one version is better than another on the same examples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from statistics import NormalDist, fmean, stdev

_RESAMPLES = 2000
_LARGE = 1000  # from this many examples on, the mean's distribution is normal for all that matters here


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of paired differences, with a lower bound that holds at a one-sided confidence."""

    mean: float
    lower: float
    n: int


def fewest_pairs(confidence: float) -> int:
    """How many pairs there must be before any test of them can be that sure.

    All ``n`` differences have one sign by chance with the probability 2 ** -n (the sign test).
    """
    return ceil(log2(1 / (1 - confidence)) - 1e-9)


def paired_difference(differences: Sequence[float], confidence: float) -> PairedDifference:
    """Bootstrap the mean of ``differences`` (Efron and Tibshirani 1993, percentile interval).

    The resampling is seeded by nothing but the data's order: the same evidence always gives the same verdict.

    Raises:
        ValueError: there are no differences.
    """
    n = len(differences)
    if n == 0:
        raise ValueError("no paired examples")
    mean = fmean(differences)
    if n >= _LARGE:
        error = stdev(differences) / n**0.5
        return PairedDifference(mean, mean - NormalDist().inv_cdf(confidence) * error, n)
    generator = random.Random(n)
    means = sorted(sum(generator.choices(differences, k=n)) / n for _ in range(_RESAMPLES))
    return PairedDifference(mean, means[int((1 - confidence) * _RESAMPLES)], n)
