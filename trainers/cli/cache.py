"""`podium cache explain`: why a step was taken from the cache, or was executed."""

from __future__ import annotations

import click
from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, pairs, with_output
from trainers.caching import Explanation
from trainers.caching import explain as explain_step
from trainers.trees import find_in_tree, tree_of

_BY_ITSELF = "It was asked for by itself, and only steps of pipelines are taken from the cache."


@click.group()
def cache() -> None:
    """Look at what cached steps rest on."""


@cache.command()
@click.argument("run")
@click.argument("step")
@with_output
def explain(out: Output, run: str, step: str) -> None:
    """Say why a step was reused or executed, and on what that rests.

    STEP is a name that 'podium runs tree RUN' shows: 'train', 'train#3' of several, 'outer/train' in one.
    """
    found = out.registry.runs.get(run)
    asked = find_in_tree(tree_of(out.registry, found.id), step).run
    explained = explain_step(out.registry, asked)
    reason = explained.reason if asked.parent else _BY_ITSELF
    data = {
        "run": found.id,
        "step": step,
        "step_run": explained.run,
        "cached": explained.cached,
        "hit": explained.hit,
        "source": explained.source,
        "reason": reason,
        "changed": list(explained.changed),
        "compared_with": explained.compared_with,
        "key": explained.key,
        "basis": dict(explained.basis),
    }
    out.show(data, lambda: _shown(out, explained, reason))


def _shown(out: Output, explained: Explanation, reason: str) -> RenderableType:
    if not explained.cached:
        return reason
    basis = explained.basis
    facts = [
        ("arguments", pairs(basis["arguments"])),
        ("inputs", pairs(basis["inputs"])),
        ("lock", basis["lock"][:16]),
        *(("code", f"{name}  {digest[:16]}") for name, digest in basis["code"].items()),
    ]
    return out.page([Text(reason), out.facts(facts)])
