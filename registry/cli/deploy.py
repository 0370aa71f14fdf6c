"""`podium deploy`: make an app's declared objects so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from registry.apps.deploying import prepare
from registry.apps.wording import change_in_words
from registry.cli.output import Output, counted, with_output
from registry.values import AppChange, AppObject, ChangeKind

_SIGNS = {
    ChangeKind.ADD: ("+", "green"),
    ChangeKind.CHANGE: ("~", "yellow"),
    ChangeKind.REMOVE: ("-", "red"),
    ChangeKind.KEEP: ("=", "dim"),
}
_DOWNTIME = "allow_downtime"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--plan", "only_plan", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before something is removed.")
@click.option(
    "--allow-downtime",
    is_flag=True,
    help="Let what serves be stopped before its successor is ready, where both do not fit.",
)
@with_output
def deploy(out: Output, file: Path, only_plan: bool, yes: bool, allow_downtime: bool) -> None:
    """Make the gates, triggers, subscriptions and deployments of FILE so.

    Shows what is added, changed and removed, then applies all of it in one transaction.
    """
    app, objects = prepare(out.registry, file)
    if allow_downtime:
        objects = [_allowing_downtime(each) for each in objects]
    plan = out.registry.apps.plan(app, objects)
    changes = [change for change in plan if change.change is not ChangeKind.KEEP]
    if not out.as_json:
        out.console.print(plan_table(out, app, plan))
    if changes and not only_plan:
        removed = [c for c in changes if c.change is ChangeKind.REMOVE]
        if removed and not (yes or out.as_json):
            out.confirm(f"{_counted(removed)} removed. Apply?")
        out.registry.apps.apply(app, objects, plan=plan)
    applied = bool(changes) and not only_plan
    data = {"app": app, "applied": applied, "changes": [_change_data(change) for change in plan]}
    nothing = "There is nothing to change." if not changes else "This is the plan; nothing was changed."
    out.show(data, lambda: f"{counted(len(changes), 'change')} applied." if applied else nothing)


def _counted(removed: list[AppChange]) -> str:
    return f"{counted(len(removed), 'object')} {'is' if len(removed) == 1 else 'are'}"


def _allowing_downtime(declared: AppObject) -> AppObject:
    """The object with that leave, if it is of a kind that knows it."""
    if _DOWNTIME not in declared.body:
        return declared
    return replace(declared, body={**declared.body, _DOWNTIME: True})


def plan_table(out: Output, app: str, plan: list[AppChange]) -> RenderableType:
    rows = []
    for change in plan:
        sign, style = _SIGNS[change.change]
        rows.append([Text(sign, style), change.kind, change.name, Text(change_in_words(change), "dim")])
    return out.page([Text(f"app {app}"), out.table(["", "kind", "name", "what"], rows)])


def _change_data(change: AppChange) -> dict[str, object]:
    return {
        "change": change.change.value,
        "kind": change.kind,
        "name": change.name,
        "before": change.before,
        "after": change.after,
    }
