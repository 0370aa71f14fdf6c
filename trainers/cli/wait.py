"""`podium runs wait`: return when runs have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from registry.cli.amount import AMOUNT
from registry.cli.evidence import BEGIN_SECONDS, last_line, triggers_begin_runs
from registry.cli.output import Output, with_output
from registry.errors import InvalidInput, Unavailable
from registry.protocol import Registry
from registry.runs import ENDED, Run, RunState
from trainers.cli.shown import ends, run_data
from trainers.errors import RunFailed

_LOOK_SECONDS = 0.5  # how long to wait for an event that may have been missed
_MOST_RUNS = 1000  # that are looked through for those of a version


class RunsPending(Unavailable):
    """A run that was waited for had not ended when the time given was over."""


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--of", metavar="REF", help="All that are queued or run with this version as an input.")
@click.option("--timeout", default=600.0, show_default=True, type=AMOUNT, help="Seconds to wait at most.")
@with_output
def wait(out: Output, runs: tuple[str, ...], of: str | None, timeout: float) -> int:
    """Return when runs have ended.

    \b
        podium runs wait 3fa2c1 --timeout 1800
        podium runs wait --of ticket-router:v1

    Exit status: 0 all have succeeded, 1 one has not, 3 one goes on after the time given.
    """
    if bool(runs) == bool(of):
        raise InvalidInput("Say which runs to wait for.", remedy="Give their ids, or --of REF.")
    ended = _wait(out, runs, of, timeout)
    out.show([run_data(out.registry, run) for run in ended], lambda: _said(ended, of))
    return 0 if all(run.state is RunState.SUCCEEDED for run in ended) else RunFailed.exit_status


def _wait(out: Output, ids: Sequence[str], of: str | None, timeout: float) -> list[Run]:
    """The runs, in the order in which they were named or found, when all have ended."""
    registry, begun = out.registry, time.monotonic()
    order = dict.fromkeys(registry.runs.get(each).id for each in ids)
    value = registry.lineage.walk(of, depth=0).root if of else None
    with out.waiting() as say:
        while True:
            newest = registry.events.position().newest
            order |= dict.fromkeys(run.id for run in _given(registry, value))
            runs = [registry.runs.get(each) for each in order]
            left = [run for run in runs if run.state not in ENDED]
            elapsed = time.monotonic() - begun
            if not left and not (_may_begin(registry, value, runs) and elapsed < BEGIN_SECONDS):
                return runs
            if elapsed >= timeout:
                raise _pending(left, of, timeout)
            say(_what(left, of), last_line(registry, left))
            registry.events.wait(newest, min(_LOOK_SECONDS, timeout - elapsed))


def _given(registry: Registry, value: str | None) -> list[Run]:
    """The runs that live and were given a value, oldest first."""
    if value is None:
        return []
    living = [
        r for s in (RunState.RUNNING, RunState.QUEUED) for r in registry.runs.list(state=s, limit=_MOST_RUNS)
    ]
    given = {run.id: run for run in living if value in {each.value for each in run.inputs}}
    return sorted(given.values(), key=lambda run: run.queued_at)


def _may_begin(registry: Registry, value: str | None, runs: Sequence[Run]) -> bool:
    """Whether a trigger may be about to queue the first run that is given a value."""
    if value is None or runs or not triggers_begin_runs(registry):
        return False
    earlier = registry.runs.list(limit=_MOST_RUNS)
    return not any(value in {each.value for each in run.inputs} for run in earlier)


def _what(left: Sequence[Run], of: str | None) -> str:
    if not left:
        return f"Waiting for a trigger to begin a run with {of}."
    return f"Waiting for {', '.join(f'{run.id} ({run.task}, {run.state.value})' for run in left)}."


def _pending(left: Sequence[Run], of: str | None, timeout: float) -> RunsPending:
    if not left:
        return RunsPending(
            f"No run with {of} has begun after {timeout:g} s.",
            remedy="Check that 'podium up' runs: it carries the events that triggers wait for.",
        )
    named = ", ".join(f"{run.id} ({run.state.value})" for run in left)
    return RunsPending(
        f"Not ended after {timeout:g} s: {named}.",
        remedy=f"Wait longer with --timeout, or see 'podium runs logs {left[0].id} --follow'.",
        runs=[run.id for run in left],
    )


def _said(ended: Sequence[Run], of: str | None) -> str:
    if not ended:
        return f"Nothing is queued or runs with {of}."
    return "\n".join(f"Run {run.id} ({run.task}) {_end(run)}" for run in ended)


def _end(run: Run) -> str:
    if run.error is None or run.state is RunState.CANCELLED:
        return f"{ends(run)}."
    return f"{ends(run)}: {run.error.type}: {run.error.message}"
