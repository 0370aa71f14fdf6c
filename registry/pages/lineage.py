"""The lineage graph around a version, small enough to be looked at."""

from __future__ import annotations

from dataclasses import dataclass

from registry.protocol import Registry
from registry.values import LineageEdge, LineageGraph, LineageNode

_UP, _DOWN = 6, 2  # steps: what a version was made from is a short story, what was made from it may be long
_MOST = 60  # nodes; more are counted


@dataclass(frozen=True, slots=True)
class Shown:
    """A node as it is drawn."""

    node: LineageNode
    depth: int  # below 0: what it was made from; above: what was made from it
    parents: tuple[LineageEdge, ...]

    @property
    def label(self) -> str:
        return self.node.refs[0] if self.node.refs else f"{self.node.kind} {self.node.digest[7:15]}"

    @property
    def link(self) -> str | None:
        """The page of the version that the node is, if it is one."""
        if not self.node.refs:
            return None
        name, _, number = self.node.refs[0].partition(":")
        return f"/artifacts/{name}/{number}"

    @property
    def edges(self) -> str:
        """For the script that draws: ``parent role`` pairs."""
        return " ".join(f"{edge.parent}={edge.role.value}" for edge in self.parents)


@dataclass(frozen=True, slots=True)
class Around:
    root: str
    shown: tuple[Shown, ...]  # from the first ancestors to the last descendants
    left_out: int


def around(registry: Registry, reference: str) -> Around:
    """What a version was made from and what was made from it."""
    up = registry.lineage.walk(reference, up=True, depth=_UP)
    down = registry.lineage.walk(reference, up=False, depth=_DOWN)
    return merge(up, down)


def merge(up: LineageGraph, down: LineageGraph, most: int = _MOST) -> Around:
    """Both walks as one graph: the nearest ``most`` nodes, with the edges between them."""
    depths = {node.value: (-node.depth, node) for node in up.nodes}
    depths.update({node.value: (node.depth, node) for node in down.nodes if node.value not in depths})
    nearest = sorted(depths.values(), key=lambda each: (abs(each[0]), each[1].value))[:most]
    kept = {node.value for _, node in nearest}
    edges = sorted(set(up.edges) | set(down.edges), key=lambda edge: (edge.child, edge.parent, edge.role))
    shown = [
        Shown(node, depth, tuple(e for e in edges if e.child == node.value and e.parent in kept))
        for depth, node in sorted(nearest, key=lambda each: (each[0], each[1].refs, each[1].value))
    ]
    return Around(up.root, tuple(shown), len(depths) - len(shown))
