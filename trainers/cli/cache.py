"""`podium cache explain`: why a step was taken from the cache, or was executed."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType

from registry.cli.output import Output, pairs, with_output
from registry.steps import find
from trainers.caching import Explanation
from trainers.caching import explain as explain_step


@click.group()
def cache() -> None:
    """Look at what cached steps rest on."""


@cache.command()
@click.argument("run")
@click.argument("step")
@with_output
def explain(out: Output, run: str, step: str) -> None:
    """Say why a step was reused or executed, and on what that rests."""
    found = out.registry.runs.get(run)
    explained = explain_step(out.registry, find(out.registry.steps.of(found.id), step))
    data = {
        "run": found.id,
        "step": step,
        "step_run": explained.run,
        "cached": explained.cached,
        "hit": explained.hit,
        "source": explained.source,
        "reason": explained.reason,
        "changed": list(explained.changed),
        "compared_with": explained.compared_with,
        "key": explained.key,
        "basis": dict(explained.basis),
    }
    out.show(data, lambda: _shown(out, explained))


def _shown(out: Output, explained: Explanation) -> RenderableType:
    if not explained.cached:
        return explained.reason
    basis = explained.basis
    rows = [
        ["arguments", pairs(basis["arguments"])],
        ["inputs", pairs(basis["inputs"])],
        ["lock", basis["lock"][:16]],
        *(["code", f"{name}  {digest[:16]}"] for name, digest in basis["code"].items()),
    ]
    return Group(explained.reason, out.table(["", ""], rows))
