"""Waiting until the evaluations that gates ask for have been made."""

from __future__ import annotations

import time
from collections.abc import Sequence

from registry.cli.output import Output
from registry.errors import Unavailable
from registry.protocol import Registry
from registry.runs import Run
from registry.values import Verdict

_LOOK_SECONDS = 0.5  # a wake-up may be lost, so look this often anyway
BEGIN_SECONDS = 60.0  # a trigger has begun what it begins by then, or nothing carries events
_LOG_PARTS = 2  # of a run's log: a line may begin in the one before the last


class EvidencePending(Unavailable):
    """What gates ask for was still being measured when the time given was over."""


def wait_for_evidence(out: Output, reference: str, alias: str, timeout: float) -> list[Verdict]:
    """Block until nothing that the alias's gates ask for is being measured; what they say then.

    Evidence that nobody makes is not waited for, but for the moment that a trigger takes to ask for it.

    Raises:
        EvidencePending: it was still being measured after ``timeout`` seconds.
    """
    registry, begun = out.registry, time.monotonic()
    seen_run = False
    with out.waiting() as say:
        while True:
            newest = registry.events.position().newest
            verdicts = registry.promotions.judge(reference, alias)
            lacking = [v for v in verdicts if v.unmeasured and not v.passed]
            runs = [registry.runs.get(run) for run in dict.fromkeys(v.run for v in lacking if v.run)]
            seen_run = seen_run or bool(runs)
            elapsed = time.monotonic() - begun
            is_new = not seen_run and not any(v.failed for v in lacking)
            may_begin = lacking and is_new and elapsed < BEGIN_SECONDS and triggers_begin_runs(registry)
            if not runs and not may_begin:
                return verdicts
            if elapsed >= timeout:
                raise _pending(reference, alias, runs, timeout)
            say(_what(runs, lacking), last_line(registry, runs))
            registry.events.wait(newest, min(_LOOK_SECONDS, timeout - elapsed))


def triggers_begin_runs(registry: Registry) -> bool:
    """Whether there is a trigger that queues runs, and so may begin an evaluation by itself."""
    actions = [each.body.get("action", {}) for each in registry.apps.objects("trigger")]
    return any(action.get("do") == "queue-run" for action in actions)


def _what(runs: Sequence[Run], lacking: Sequence[Verdict]) -> str:
    if not runs:
        return f"Waiting for a trigger to have {lacking[0].unmeasured} evaluated."
    named = ", ".join(f"run {run.id} ({run.task}, {run.state.value})" for run in runs)
    measured = ", ".join(dict.fromkeys(v.unmeasured for v in lacking if v.unmeasured))
    return f"Waiting for {named}, to measure {measured}."


def last_line(registry: Registry, runs: Sequence[Run]) -> str:
    """What the first of the runs printed last: how far it is, where it says so."""
    parts = registry.runs.log(runs[0].id, limit=_LOG_PARTS, newest=True) if runs else []
    lines = b"".join(part.data for part in parts).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _pending(reference: str, alias: str, runs: Sequence[Run], timeout: float) -> EvidencePending:
    return EvidencePending(
        f"{reference} was not judged for '{alias}': what its gates ask for is not there after {timeout:g} s.",
        remedy=f"Wait longer with --timeout, or see 'podium runs logs {runs[0].id} --follow'."
        if runs
        else "Check that 'podium up' runs: it carries the events that start evaluations.",
        runs=[run.id for run in runs],
    )
