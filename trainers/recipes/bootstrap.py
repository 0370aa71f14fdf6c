"""Is the difference between two models more than the luck of the held-out draw?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
CONFIDENCE = 0.95
_CELLS_AT_ONCE = 4_000_000  # resampled numbers held at a time: 32 MB


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of ``ours - theirs`` over the same examples, and how sure it is."""

    difference: float
    low: float  # of the 95 % interval
    high: float
    p_value: float  # two-sided: of a difference this far from 0 by luck
    n: int


def paired_bootstrap(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0) -> PairedDifference:
    """Percentile bootstrap of a paired mean difference (Efron and Tibshirani 1993, chapters 13 and 16).

    Examples are drawn with replacement 10,000 times, each with both of its scores, so what makes an example
    hard for both models cancels out. The same scores and seed give the same numbers.
    """
    import numpy

    differences = numpy.asarray(ours, dtype=float) - numpy.asarray(theirs, dtype=float)
    n = len(differences)
    random = numpy.random.default_rng(seed)
    means = numpy.empty(RESAMPLES)
    step = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, RESAMPLES, step):
        count = min(step, RESAMPLES - start)
        means[start : start + count] = differences[random.integers(0, n, (count, n))].mean(1)
    low, high = numpy.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    # One is added so that a finite number of draws never claims a probability of zero.
    tail = (min((means <= 0).sum(), (means >= 0).sum()) + 1) / (RESAMPLES + 1)
    return PairedDifference(float(differences.mean()), float(low), float(high), min(1.0, 2 * float(tail)), n)
