"""Measures: the numbers that a run reports while it goes, from which its curves are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from registry.errors import InvalidInput

#: How many measures one call may record, and how many numbers one of them may have.
MOST_AT_ONCE = 1000
_MOST_NUMBERS = 100
_LONGEST_NAME = 100
_LARGEST_STEP = 2**53


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured at one step."""

    step: int
    numbers: Mapping[str, float | None]  # name -> value; None where it was infinite or no number


@dataclass(frozen=True, slots=True)
class MeasurePart:
    """Measures that an attempt reported together."""

    run: str
    attempt: int
    sequence: int  # order within the run
    measures: Sequence[Measure]


def measured(step: int, numbers: Mapping[str, float]) -> Measure:
    """The measure as it can be kept: JSON has no word for what is not finite."""
    finite = {name: float(value) if math.isfinite(value) else None for name, value in numbers.items()}
    return Measure(step, finite)


def check_measures(measures: Sequence[Measure]) -> None:
    """Raise `InvalidInput` where there are too many, or one cannot be kept."""
    if not 0 < len(measures) <= MOST_AT_ONCE:
        raise InvalidInput(
            f"{len(measures)} measures were reported at once.", remedy=f"Report 1 to {MOST_AT_ONCE}."
        )
    for each in measures:
        if not 0 <= each.step <= _LARGEST_STEP:
            raise InvalidInput(f"{each.step} is no step.", remedy=f"A step is 0 to {_LARGEST_STEP}.")
        if not 0 < len(each.numbers) <= _MOST_NUMBERS:
            raise InvalidInput(
                f"Step {each.step} has {len(each.numbers)} numbers.", remedy=f"Report 1 to {_MOST_NUMBERS}."
            )
        for name, value in each.numbers.items():
            if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
                raise InvalidInput(
                    f"{name[:_LONGEST_NAME]!r} cannot be the name of a curve.",
                    remedy=f"Use 1 to {_LONGEST_NAME} printable characters.",
                )
            if value is not None and not math.isfinite(value):
                raise InvalidInput(f"{name} is not finite.", remedy="Report None in its place.")
