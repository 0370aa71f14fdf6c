"""Time and chance, kept in the journal: a pipeline that goes on sees what it saw before."""

from __future__ import annotations

import datetime as dt
import random as _random

from trainers.stepping import current_stepper


def now() -> dt.datetime:
    """The time in UTC. In a pipeline that is executed again: the time that it was then."""
    at = dt.datetime.now(dt.UTC)
    stepper = current_stepper()
    return at if stepper is None else dt.datetime.fromisoformat(stepper.note("now", at.isoformat()))


def random() -> float:
    """A number from 0 to 1, less than 1. In a pipeline that is executed again: the same as then."""
    drawn = _random.random()
    stepper = current_stepper()
    return drawn if stepper is None else float(stepper.note("random", drawn))
