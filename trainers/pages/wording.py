"""Runs in the few words and colours of a page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from registry.runs import Run, RunState

STATE_TONES: Mapping[RunState, str] = {
    RunState.QUEUED: "",
    RunState.RUNNING: "busy",
    RunState.SUCCEEDED: "good",
    RunState.FAILED: "bad",
    RunState.INTERRUPTED: "warn",
    RunState.CANCELLED: "warn",
}


def seconds_of(run: Run) -> float | None:
    """How long a run took, or has taken so far; None before it began."""
    if run.started_at is None:
        return None
    return ((run.ended_at or datetime.now(UTC)) - run.started_at).total_seconds()


def duration(seconds: float | None) -> str:
    """Seconds as a person says them: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
