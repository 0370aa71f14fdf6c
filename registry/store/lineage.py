"""Lineage: what was made from what, both ways."""

from __future__ import annotations

from registry.database.engine import Transaction
from registry.database.statements import Statement, sql
from registry.errors import ArtifactNotFound
from registry.references import Reference
from registry.store import rows
from registry.store.prefixes import find_value
from registry.store.session import Session
from registry.values import LineageEdge, LineageGraph, LineageNode, Role


def _walk(near: str, far: str) -> Statement:
    # UNION, not UNION ALL: a value that is reached twice at one depth is walked from once.
    return sql(f"""
        WITH RECURSIVE reached (value, depth) AS (
            SELECT CAST(:root AS TEXT), 0
            UNION
            SELECT edge.{far}, reached.depth + 1 FROM reached JOIN edge ON edge.{near} = reached.value
            WHERE reached.depth < :depth
        )
        SELECT value.id, value.kind, value.digest, value.run, MIN(reached.depth) AS depth
        FROM reached JOIN value ON value.id = reached.value
        GROUP BY value.id, value.kind, value.digest, value.run ORDER BY depth, value.id
    """)


_UP = _walk("child", "parent")
_DOWN = _walk("parent", "child")
_PARENTS = sql("SELECT child, parent, role FROM edge WHERE child = :value")
_DIGEST = "sha256:"
_VALUE = sql("SELECT id FROM value WHERE id = :value")


class StoredLineage:
    def __init__(self, session: Session) -> None:
        self._session = session

    def walk(self, reference: str, *, up: bool = True, depth: int = 50) -> LineageGraph:
        with self._session.reading() as reader:
            root = _root(reader, reference)
            found = reader.all(_UP if up else _DOWN, root=root, depth=depth)
            nodes = tuple(
                LineageNode(value, kind, digest, _refs(reader, value), run, steps)
                for value, kind, digest, run, steps in found
            )
            return LineageGraph(root, nodes, _edges(reader, nodes))


def _root(reader: Transaction, reference: str) -> str:
    if reader.first(_VALUE, value=reference) is not None:
        return reference
    if reference.startswith(_DIGEST) and (found := find_value(reader, reference)) is not None:
        return found
    try:
        value: str = rows.require(reader, Reference.parse(reference))[10]
    except ArtifactNotFound:
        found = find_value(reader, reference)  # names come first: nobody expects an id to hide one
        if found is None:
            raise
        return found
    return value


def _refs(reader: Transaction, value: str) -> tuple[str, ...]:
    return tuple(f"{row[2]}:v{row[3]}" for row in rows.naming_value(reader, value))


def _edges(reader: Transaction, nodes: tuple[LineageNode, ...]) -> tuple[LineageEdge, ...]:
    values = {node.value for node in nodes}
    return tuple(
        LineageEdge(child, parent, Role(role))
        for node in nodes
        for child, parent, role in reader.all(_PARENTS, value=node.value)
        if parent in values
    )
