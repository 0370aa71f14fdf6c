"""What runs report while they go, as the `Registry` protocol gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from registry.measures import Measure, MeasurePart


class Measures(Protocol):
    """Numbers that runs report of themselves."""

    def add(self, run: str, measures: Sequence[Measure]) -> None:
        """Record what a run has measured. Called by a registry acting with the run's authority.

        Raises:
            InvalidInput: too many, or one that cannot be kept. Nothing was recorded.
            StaleAuthority: another attempt, or nobody, carries the run out now. Nothing was recorded.
            RunRefused: called on behalf of anybody else.
        """

    def of(self, run: str, *, after: int = 0, limit: int = 1000) -> Sequence[MeasurePart]:
        """What a run's attempts have reported after the part numbered ``after``, in order."""
