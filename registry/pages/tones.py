"""The colours of what several rooms show."""

from __future__ import annotations

from collections.abc import Mapping

from registry.runs import RunState

RUN_TONES: Mapping[RunState, str] = {
    RunState.QUEUED: "",
    RunState.RUNNING: "busy",
    RunState.SUCCEEDED: "good",
    RunState.FAILED: "bad",
    RunState.INTERRUPTED: "warn",
    RunState.CANCELLED: "warn",
}
