"""`podium lineage`: what was made from what."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.tree import Tree

from registry.cli.output import Output, with_output
from registry.values import LineageGraph, LineageNode


@click.command()
@click.argument("reference")
@click.option("--up/--down", default=True, help="What it was made from (default), or what was made from it.")
@click.option("--depth", default=50, show_default=True, type=click.IntRange(1, 1000))
@with_output
def lineage(out: Output, reference: str, up: bool, depth: int) -> None:
    """Show what a version was made from, or what was made from it."""
    graph = out.registry.lineage.walk(reference, up=up, depth=depth)
    out.show(asdict(graph), lambda: lineage_tree(graph, up=up))


def lineage_tree(graph: LineageGraph, *, up: bool) -> Tree:
    """The graph as a tree from its root; what is met again is named, not opened again."""
    nodes = {node.value: node for node in graph.nodes}
    following: dict[str, list[tuple[str, str]]] = {}
    for edge in graph.edges:
        near, far = (edge.child, edge.parent) if up else (edge.parent, edge.child)
        following.setdefault(near, []).append((edge.role.value, far))
    tree = Tree(_node_label(nodes[graph.root]))
    _grow(tree, graph.root, nodes, following, {graph.root})
    return tree


def _grow(
    tree: Tree,
    value: str,
    nodes: dict[str, LineageNode],
    following: dict[str, list[tuple[str, str]]],
    seen: set[str],
) -> None:
    for role, far in sorted(following.get(value, [])):
        label = f"[dim]{role}[/dim] {_node_label(nodes[far])}"
        if far in seen:
            tree.add(f"{label} [dim](above)[/dim]")
            continue
        seen.add(far)
        _grow(tree.add(label), far, nodes, following, seen)


def _node_label(node: LineageNode) -> str:
    name = ", ".join(node.refs) or f"({node.value[:12]})"
    run = f" [dim]run {node.run[:12]}[/dim]" if node.run else ""
    return f"{name} [dim]{node.kind} {node.digest[7:19]}[/dim]{run}"
