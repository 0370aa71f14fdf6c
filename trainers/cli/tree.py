"""`podium runs tree`: the steps of a run, and what became of each."""

from __future__ import annotations

import click
from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, with_output
from trainers.cli.shown import STATE_STYLES
from trainers.trees import Node, tree_of


@click.command()
@click.argument("run")
@with_output
def tree(out: Output, run: str) -> None:
    """Show the steps of a run: state, reused or ran, attempt, seconds, cause of failure."""
    top = tree_of(out.registry, run)
    out.show(top.to_json(), lambda: _shown(out, top))


def _shown(out: Output, top: Node) -> RenderableType:
    columns = ["step", "run", "state", "how", ">attempt", ">seconds", "cause"]
    return out.table(columns, [_row(depth, node) for depth, node in top.walk()])


def _row(depth: int, node: Node) -> list[object]:
    run = node.run
    return [
        f"{'  ' * depth}{node.name}",
        run.id,
        Text(run.state.value, STATE_STYLES.get(run.state, "")),
        _how(node),
        run.attempts or None,
        None if node.seconds is None else f"{node.seconds:.1f}",
        _cause(node),
    ]


def _how(node: Node) -> str | None:
    if node.run.waits_for:
        return f"waits for {node.run.waits_for}"
    if node.run.source:
        return f"reused from {node.run.source}"
    if node.reused:
        return "reused"
    return "ran" if node.run.started_at else None


def _cause(node: Node) -> str | None:
    if node.run.error is not None:
        return f"{node.run.error.type}: {node.run.error.message}"[:80]
    return node.run.cause.value if node.run.cause else None
