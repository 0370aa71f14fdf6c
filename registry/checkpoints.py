"""Checkpoints of runs as values: what was saved, and which of them are kept.

A checkpoint belongs to a run and not to an attempt: what one attempt saves, the next one finds. The newest
whole one of a series is where the run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

#: The series of a task that does not name its own.
TRAINING = "training"


class CheckpointState(StrEnum):
    WHOLE = "whole"  # all its bytes were stored before it was recorded
    DAMAGED = "damaged"  # bytes of it were missing or wrong when it was read; it is passed over from then on


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The state of a training at one step, as it is stored."""

    run: str
    series: str  # what it is the state of, where a task has several trainings
    number: int  # order of saving within the series, from 1
    step: int  # steps that were done when it was taken
    digest: str  # of its content, which is of kind "checkpoint"
    size: int  # bytes
    bytes_sent: int  # of these, how many had to be sent; what did not change was there
    attempt: int  # the attempt that saved it
    saved_at: datetime
    state: CheckpointState = CheckpointState.WHOLE
    reason: str = ""  # what is wrong with a damaged one
    metadata: Mapping[str, Any] = field(default_factory=dict)  # what a task asks before it loads it


def surplus(saved: Sequence[SavedCheckpoint], keep: int) -> list[SavedCheckpoint]:
    """Those of one series that may go when its newest ``keep`` whole ones are kept.

    A damaged one goes when it is older than all that are kept: until then it says why it was passed over.
    """
    whole = sorted(each.number for each in saved if each.state is CheckpointState.WHOLE)
    if len(whole) < keep:
        return []
    return [each for each in saved if each.number < whole[-keep]]
