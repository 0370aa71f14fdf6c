"""`podium run` and `podium evaluate`: ask for a run and follow it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click
from rich.console import RenderableType

from registry.cli.output import Output, with_output
from registry.cli.value import ID_SHOWN
from registry.errors import InvalidInput
from registry.runs import Run, RunState, private_pool
from trainers.cli.shown import ends, how_to_name, result_of, run_data
from trainers.describing import described, summary
from trainers.following import follow
from trainers.locating import load_task
from trainers.parameters import options_to_mapping
from trainers.placing import check_left_to_workers
from trainers.private import able_workers, private_capacity, private_worker
from trainers.raising import as_whole
from trainers.submitting import Located, locate, prepare
from trainers.tasks import Task

_UNPARSED = {"ignore_unknown_options": True, "allow_extra_args": True}


def _submission_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of all commands that ask for a run."""
    for option in (
        click.option("--strict", is_flag=True, help="With a private worker: refuse what this machine lacks."),
        click.option("--local", is_flag=True, help="Run it here, in a private worker."),
        click.option("--detach", is_flag=True, help="Return as soon as it is queued."),
        click.option("--publish", metavar="NAME", help="Make the result a version of this artifact."),
    ):
        command = option(command)
    return command


class _OfTask(click.Command):
    """`podium run TASK --help` shows that task's own parameters."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = [word for word in args if word not in ctx.help_option_names]
        if not rest or rest == args:
            return super().parse_args(ctx, args)
        left = super().parse_args(ctx, rest)
        self._show_help(ctx, load_task(ctx.params["target"]))
        ctx.exit()
        return left

    def _show_help(self, ctx: click.Context, task: Task[..., Any]) -> None:
        formatter = ctx.make_formatter()
        target = ctx.params["target"]
        formatter.write_usage(ctx.command_path, f"{target} [--ARGUMENT VALUE]... [OPTIONS]")
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(summary(task))
        with formatter.section("Arguments"):
            rows = [(each.option, each.about) for each in described(task)]
            formatter.write_dl(rows or [("none", "")], col_max=34)
        self.format_options(ctx, formatter)
        click.echo(formatter.getvalue().rstrip())


@click.command(cls=_OfTask, context_settings=_UNPARSED)
@click.argument("target", metavar="RECIPE|FILE:TASK")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--ARGUMENT VALUE]...")
@_submission_options
@with_output
def run(
    out: Output,
    target: str,
    arguments: tuple[str, ...],
    publish: str | None,
    detach: bool,
    local: bool,
    strict: bool,
) -> None:
    """Run a recipe, or a task of a Python file, and follow it.

    Recipes are prefetch, sft, evaluate and merge; 'podium run sft --help' shows what sft takes. Artifacts
    are given as references:

    \b
        podium run sft --base smollm2:v1 --data tickets:v1 --rank 16
    """
    located = locate(out.registry, target)
    given = options_to_mapping(list(arguments))
    _submit(out, located, given, publish=publish, detach=detach, local=local, strict=strict)


@click.command()
@click.argument("reference")
@click.option("--on", "data", required=True, metavar="REF", help="The data set with the held-out examples.")
@click.option("--base", metavar="REF", help="The base to compare with; that of its lineage unless given.")
@click.option("--split", metavar="NAME", help="Which part of the data set; 'heldout' unless given.")
@_submission_options
@with_output
def evaluate(
    out: Output, reference: str, data: str, base: str | None, split: str | None, **options: Any
) -> None:
    """Judge a version and its base on the same held-out examples."""
    given = {"subject": reference, "data": data, "base": base, "split": split}
    located = locate(out.registry, "evaluate")
    _submit(out, located, {name: value for name, value in given.items() if value is not None}, **options)


def refuse_detached_here(*, local: bool, detach: bool) -> None:
    """Nobody would take what is queued for a private worker that ends with this command."""
    if local and detach:
        raise InvalidInput(
            "--local runs it in this command, and --detach leaves it.", remedy="Give one of the two."
        )


def _submit(
    out: Output,
    located: Located,
    arguments: Mapping[str, str],
    *,
    publish: str | None,
    detach: bool,
    local: bool,
    strict: bool,
) -> None:
    refuse_detached_here(local=local, detach=detach)
    for notice in located.notices:
        out.note(notice)
    request = prepare(out.registry, located, arguments, publish=publish)
    if local:
        request = replace(request, pool=private_pool())
    if detach:
        check_left_to_workers(out.registry, request)
    see_through(out, out.registry.runs.queue(request), detach=detach, local=local, strict=strict)


def see_through(
    out: Output,
    queued: Run,
    *,
    detach: bool,
    local: bool,
    strict: bool,
    beside: Mapping[str, Any] | None = None,
) -> None:
    """Follow a queued run to its end, and print that; carry it out here where no worker could take it.

    ``beside`` is printed with it as JSON.
    """
    beside = beside or {}
    if detach:
        out.show(
            {**run_data(out.registry, queued), **beside}, lambda: f"Run {queued.id} is {queued.state.value}."
        )
        return
    if queued.state is RunState.QUEUED and (local or not able_workers(out.registry, queued)):
        ended = _run_here(out, queued, strict=strict, asked_for=local)
    else:
        ended = _follow(out, queued)
    _finish(out, ended, beside)


def _run_here(out: Output, queued: Run, *, strict: bool, asked_for: bool) -> Run:
    offered, warning = private_capacity(queued, strict=strict)
    if warning:
        out.note(f"{warning} It is tried all the same.")
    if not asked_for:
        out.note("No worker that is up could take it: it runs here, in a private worker.")
    with private_worker(out.registry, queued, offered, lambda _: None, strict=strict) as failure:

        def check() -> None:
            error = failure()
            if error is not None:
                raise error

        try:
            return _follow(out, queued, check=check)
        except KeyboardInterrupt:
            out.note(f"Stopping run {queued.id}; 'podium runs recover {queued.id}' continues it.")
            raise


def _follow(out: Output, queued: Run, check: Callable[[], None] = lambda: None) -> Run:
    def changed(run: Run) -> None:
        if run.state in (RunState.QUEUED, RunState.RUNNING):
            again = f", attempt {run.attempts}" if run.attempts > 1 else ""
            out.note(f"Run {run.id} is {run.state.value}{again}.")

    def printed(data: bytes) -> None:
        if not out.as_json:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    try:
        return follow(out.registry, queued.id, changed=changed, printed=printed, check=check)
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            out.note(f"Run {queued.id} goes on. Follow it with: podium runs logs {queued.id} --follow")
        raise


def _finish(out: Output, ended: Run, beside: Mapping[str, Any]) -> None:
    """Print the end of a run; one that did not succeed is an error."""
    data = {**run_data(out.registry, ended), **beside}
    if ended.state is RunState.SUCCEEDED:
        out.show(data, lambda: _success(out, ended))
        if hint := how_to_name(ended):
            out.note(hint)
        return
    why = f": {ended.error.type}: {ended.error.message}" if ended.error else "."
    remedy = ended.error.remedy if ended.error and ended.error.remedy else ""
    raise as_whole(ended)(
        f"Run {ended.id} {ends(ended)}{why}",
        remedy=remedy or f"See 'podium runs show {ended.id}' and 'podium runs logs {ended.id}'.",
        **data,
    )


def _success(out: Output, ended: Run) -> RenderableType:
    seconds = (
        (ended.ended_at - ended.started_at).total_seconds() if ended.ended_at and ended.started_at else 0
    )
    lines = [f"Run {ended.id} succeeded in {seconds:.1f} s."]
    for output in ended.outputs:
        lines.append(f"  {output.name}: {output.ref or output.value[:ID_SHOWN]} ({output.kind})")
        lines += _scores(out, output.digest, ended) if output.kind == "report" else []
    if ended.result is not None:
        lines.append(f"  returned {result_of(ended)!r}")
    return "\n".join(lines)


def _scores(out: Output, digest: str, ended: Run) -> list[str]:
    """The scores of a report that the run made."""
    subjects = [each.digest for each in ended.inputs if each.role == "subject"]
    made = {output.value for output in ended.outputs} | {output.ref for output in ended.outputs}
    lines = []
    for evaluation in (e for subject in subjects for e in out.registry.evaluations.of(subject)):
        if evaluation.report in made:
            for score in evaluation.scores.values():
                base = "" if score.base is None else f"   base {score.base:.4g}"
                lines.append(f"    {score.metric:<12} {score.value:.4g}{base}")
    return lines
