"""Runs in the few words and colours of a page."""

from __future__ import annotations

from datetime import UTC, datetime

from registry.runs import Run
from trainers import progress


def seconds_of(run: Run) -> float | None:
    """How long a run took, or has taken so far; None before it began."""
    if run.started_at is None:
        return None
    return ((run.ended_at or datetime.now(UTC)) - run.started_at).total_seconds()


def duration(seconds: float | None) -> str:
    """As a log says it, but that of a few seconds a tenth counts, and ``-`` stands for none."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 10 else progress.duration(seconds)
