"""Waiting until a deployment has replaced its processes."""

from __future__ import annotations

import json
import time

from registry.cli.output import Output
from registry.deployments import ConditionType
from registry.errors import Unavailable
from serving.overview import Overview, overview

MOST_SECONDS = 1800.0  # to wait, unless told otherwise: two large models may have to be read
_LOOK_SECONDS = 0.5  # observing replicas is no event, so look this often


class RestartPending(Unavailable):
    """The deployment has not replaced its processes within the time given, or does not for now."""


def wait_until_restarted(out: Output, name: str, timeout: float) -> Overview:
    """Block until all replicas are new ones and answer; ``timeout`` is in seconds.

    Raises:
        RestartPending: they are not, in time, or it is paused.
    """
    end = time.monotonic() + timeout
    with out.waiting() as say:
        while True:
            seen = overview(out.registry, name)
            if has_restarted(seen):
                return seen
            if seen.is_paused:
                raise RestartPending(
                    f"{name} is paused, so its processes are not replaced.",
                    remedy=f"Run 'podium deployments resume {name}'.",
                )
            if time.monotonic() >= end:
                raise RestartPending(
                    f"{name} has not replaced its processes within {timeout:g} s; it goes on.",
                    remedy=seen.remark or f"See 'podium deployments show {name}'.",
                )
            say(f"{name} replaces its processes", _progress(seen))
            time.sleep(_LOOK_SECONDS)


def _progress(seen: Overview) -> str:
    found = {condition.type: condition.reason for condition in seen.conditions}
    return found.get(ConditionType.PROGRESSING, "") or seen.remark


def has_restarted(seen: Overview) -> bool:
    """Whether what serves began after the last restart that was asked for, and is whole."""
    if not seen.table.engine or json.loads(seen.table.engine)["restarts"] != seen.intent.restarts:
        return False
    holds = {condition.type: condition.holds for condition in seen.conditions}
    return all(
        holds.get(type) is wanted
        for type, wanted in (
            (ConditionType.AVAILABLE, True),
            (ConditionType.UP_TO_DATE, True),
            (ConditionType.PROGRESSING, False),
        )
    )
