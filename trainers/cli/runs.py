"""`podium runs`: what ran, how it went, what it printed."""

from __future__ import annotations

import sys

import click
from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, pairs, with_output
from registry.cli.value import ID_SHOWN
from registry.runs import Attempt, Run, RunState
from trainers.cli.resume import recover, rerun
from trainers.cli.shown import STATE_STYLES, run_data, run_details
from trainers.cli.tree import tree
from trainers.cli.wait import wait
from trainers.following import follow

_COLUMNS = ["run", "task", "state", ">attempts", "queued", ">seconds", "made", "error"]
_ERROR_SHOWN = 60  # characters of an error in a list; 'podium runs show' has all of it


@click.group()
def runs() -> None:
    """Look at runs, and cancel or recover them."""


@runs.command("list")
@click.option("--state", type=click.Choice([state.value for state in RunState]))
@click.option("--task", help="Only runs of this task.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@with_output
def list_(out: Output, state: str | None, task: str | None, limit: int) -> None:
    """List runs, newest first."""
    found = out.registry.runs.list(state=RunState(state) if state else None, task=task, limit=limit)
    rows = [_row(run) for run in found]
    out.show(
        [run_data(out.registry, run) for run in found],
        lambda: out.table(
            _COLUMNS, rows, empty="There are no such runs." if state or task else "No runs yet."
        ),
    )


def _row(run: Run) -> list[object]:
    outputs = ", ".join(o.ref or f"{o.kind} {o.value[:ID_SHOWN]}" for o in run.outputs)
    return [
        run.id,
        run.task,
        Text(run.state.value, STATE_STYLES.get(run.state, "")),
        run.attempts,
        run.queued_at,
        _seconds(run),
        outputs or None,
        f"{run.error.type}: {run.error.message}"[:_ERROR_SHOWN] if run.error else None,
    ]


def _seconds(run: Run) -> str | None:
    if run.started_at is None or run.ended_at is None:
        return None
    return f"{(run.ended_at - run.started_at).total_seconds():.1f}"


@runs.command()
@click.argument("run")
@with_output
def show(out: Output, run: str) -> None:
    """Show a run: what it was asked with, its attempts, what it made."""
    found = out.registry.runs.get(run)
    attempts = out.registry.runs.attempts(found.id)
    data = run_data(out.registry, found) | run_details(found, attempts)
    out.show(data, lambda: _shown(out, found, list(attempts)))


def _shown(out: Output, run: Run, attempts: list[Attempt]) -> RenderableType:
    source = run.captured.get("source", {})
    commit = source.get("commit", "")[:12] + (" with changes" if source.get("dirty") else "")
    facts = {
        "run": run.id,
        "task": run.task,
        "state": run.state.value,
        "by": run.actor,
        "inputs": pairs({i.parameter: i.ref or i.value for i in run.inputs}),
        "arguments": pairs(run.arguments),
        "outputs": pairs({o.name: o.ref or o.value for o in run.outputs}),
        "result": run.result,
        "code": run.code,
        "commit": commit or None,
        "queued": run.queued_at,
        "seconds": _seconds(run),
    }
    told = [(name, value) for name, value in facts.items() if value not in (None, "-")]
    rows = [[a.number, a.worker, a.outcome and a.outcome.value, a.cause, _error(a)] for a in attempts]
    columns = [">attempt", "worker", "outcome", "cause", "error"]
    shown = [out.facts(told), out.table(columns, rows, empty="No attempt has begun.")]
    if run.error and run.error.traceback:
        shown.append(Text(run.error.traceback, "dim"))
    return out.page(shown)


def _error(attempt: Attempt) -> str | None:
    return f"{attempt.error.type}: {attempt.error.message}" if attempt.error else None


@runs.command()
@click.argument("run")
@click.option("--follow", "following", is_flag=True, help="Go on until the run has ended.")
@with_output
def logs(out: Output, run: str, following: bool) -> None:
    """Print what a run printed, as it came."""
    found = out.registry.runs.get(run)
    collected: list[bytes] = []
    take = collected.append if out.as_json else _write
    follow(
        out.registry,
        found.id,
        changed=lambda _: None,
        printed=take,
        once=not following,
    )
    text = b"".join(collected).decode(errors="backslashreplace")
    out.show({"run": found.id, "log": text}, lambda: None)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@runs.command()
@click.argument("run")
@with_output
def cancel(out: Output, run: str) -> None:
    """End a run and its steps for good."""
    ended = out.registry.runs.cancel(run)
    out.show(run_data(out.registry, ended), lambda: f"Run {ended.id} is {ended.state.value}.")


runs.add_command(tree)
runs.add_command(recover)
runs.add_command(rerun)
runs.add_command(wait)
