"""`podium runs recover` and `podium runs rerun`: go on with a run, or run it anew from a step on."""

from __future__ import annotations

import click

from registry.cli.output import Output, with_output
from registry.errors import InvalidInput
from registry.runs import private_pool
from trainers.cli.run import refuse_detached_here, see_through
from trainers.forking import Resumed
from trainers.forking import recover as recover_run
from trainers.forking import rerun as rerun_run
from trainers.placing import check_left_to_workers

_recorded = click.option(
    "--recorded-code", is_flag=True, help="Use the code that was recorded, though its file has changed."
)
_detach = click.option("--detach", is_flag=True, help="Return as soon as it is queued.")
_strict = click.option(
    "--strict", is_flag=True, help="With a private worker: refuse what this machine lacks."
)


@click.command()
@click.argument("run")
@click.option("--take-over", is_flag=True, help="End what it does now, if it lives, and go on from there.")
@_recorded
@_detach
@_strict
@with_output
def recover(out: Output, run: str, take_over: bool, recorded_code: bool, detach: bool, strict: bool) -> None:
    """Go on with a run that failed or was interrupted.

    Steps that are finished are reused; what failed is done again, with the file as it is now.
    """
    _check_detached(out, run, detach)
    resumed = recover_run(out.registry, run, take_over=take_over, recorded_code=recorded_code)
    _see_through(out, resumed, detach=detach, local=False, strict=strict)


@click.command()
@click.argument("run")
@click.option(
    "--from",
    "start",
    metavar="STEP",
    help="The step to begin with; 'train#3' of several, 'outer/train' in one.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="An argument of it, or of the run."
)
@click.option("--local", is_flag=True, help="Run it here, in a private worker.")
@_recorded
@_detach
@_strict
@with_output
def rerun(
    out: Output,
    run: str,
    start: str | None,
    changes: tuple[str, ...],
    local: bool,
    recorded_code: bool,
    detach: bool,
    strict: bool,
) -> None:
    """Run it anew from a step on; what came before that step is reused.

    \b
        podium runs rerun RUN --from train --set lr=5e-5
        podium runs rerun RUN --from post_train#2/train

    It is a new run. Without --from nothing is reused.
    """
    refuse_detached_here(local=local, detach=detach)
    _check_detached(out, run, detach)
    resumed = rerun_run(
        out.registry,
        run,
        start=start,
        changes=_changes(changes),
        pool=private_pool() if local else None,
        recorded_code=recorded_code,
    )
    _see_through(out, resumed, detach=detach, local=local, strict=strict)


def _check_detached(out: Output, run: str, detach: bool) -> None:
    if detach:
        check_left_to_workers(out.registry, out.registry.runs.get(run))


def _see_through(out: Output, resumed: Resumed, *, detach: bool, local: bool, strict: bool) -> None:
    for notice in resumed.notices:
        out.note(notice)
    changed = {"changed": list(resumed.changed)}
    see_through(out, resumed.run, detach=detach, local=local, strict=strict, beside=changed)


def _changes(given: tuple[str, ...]) -> dict[str, str]:
    changes = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise InvalidInput(f"'{each[:80]}' sets nothing.", remedy="Write it as --set name=value.")
        changes[name.replace("-", "_")] = value
    return changes
