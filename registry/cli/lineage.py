"""`podium lineage`: what was made from what."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.text import Text
from rich.tree import Tree

from registry.cli.output import Output, with_output
from registry.outputs import find_made
from registry.values import LineageGraph, LineageNode


@click.command()
@click.argument("reference", metavar="REFERENCE|RUN/STEP|ID")
@click.option("--up/--down", default=True, help="What it was made from (default), or what was made from it.")
@click.option("--depth", default=50, show_default=True, type=click.IntRange(1, 1000))
@with_output
def lineage(out: Output, reference: str, up: bool, depth: int) -> None:
    """Show what a version, or what a run made, was made from, or what was made from it."""
    made = find_made(out.registry, reference)
    graph = out.registry.lineage.walk(made.value, up=up, depth=depth)
    out.show(asdict(graph), lambda: lineage_tree(graph, up=up))


def lineage_tree(graph: LineageGraph, *, up: bool) -> Tree:
    """The graph as a tree from its root; what is met again is named, not opened again."""
    nodes = {node.value: node for node in graph.nodes}
    following: dict[str, list[tuple[str, str]]] = {}
    for edge in graph.edges:
        near, far = (edge.child, edge.parent) if up else (edge.parent, edge.child)
        following.setdefault(near, []).append((edge.role.value, far))
    root = Tree(_label(nodes[graph.root]))
    opened = {graph.root}
    growing = [(graph.root, root)]
    while growing:  # a walk and not a recursion: lineages are longer than Python's stack
        value, branch = growing.pop()
        for role, far in sorted(following.get(value, [])):
            label = Text.assemble((f"{role} ", "dim"), _label(nodes[far]))
            if far in opened:
                branch.add(label.append(" (above)", "dim"))
            else:
                opened.add(far)
                growing.append((far, branch.add(label)))
    return root


def _label(node: LineageNode) -> Text:
    name = ", ".join(node.refs) or f"({node.value[:12]})"
    run = f"  run {node.run[:12]}" if node.run else ""
    return Text.assemble(name, (f"  {node.kind} {node.digest[7:19]}{run}", "dim"))
