"""How many random schedules a test runs, and which."""

from __future__ import annotations

import os

#: 1 in everyday runs; a night's worth is 50 or so.
SCALE = float(os.environ.get("PODIUM_SIMULATIONS", "1"))


def seeds(count: int, *, first: int = 0) -> range:
    """Seeds for about ``count`` schedules in an everyday run."""
    return range(first, first + max(1, int(count * SCALE)))


def reachable(count: int, *, most: int = 8) -> range:
    """Which of a point's ``count`` times to die at: all of them, or in an everyday run evenly chosen ones."""
    return range(1, count + 1, max(1, round(count / (most * SCALE))))
