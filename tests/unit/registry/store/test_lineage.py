"""What was made from what, walked both ways."""

from __future__ import annotations

import pytest

from registry.errors import ArtifactNotFound
from registry.protocol import Registry
from registry.values import LineageGraph, Parent, Role, Version
from tests.common.registries import Maker


def named(graph: LineageGraph) -> list[tuple[str, int]]:
    return sorted((node.refs[0], node.depth) for node in graph.nodes)


@pytest.fixture
def tuned(make: Maker) -> Version:
    """An adapter from a base and data, and a report on it."""
    base, data, held_out = make.model("tiny"), make.dataset("tickets"), make.dataset("held-out")
    parents = [Parent(base.ref, Role.BASE), Parent(data.ref, Role.DATA)]
    bot = make.adapter("bot", parents=parents)
    make.report(bot, held_out, 0.9)
    return bot


def test_up_is_what_it_was_made_from(registry: Registry, tuned: Version) -> None:
    graph = registry.lineage.walk("scores:v1")
    assert named(graph) == [
        ("bot:v1", 1),
        ("held-out:v1", 1),
        ("scores:v1", 0),
        ("tickets:v1", 2),
        ("tiny:v1", 2),
    ]
    refs = {node.value: node.refs[0] for node in graph.nodes}
    assert {(refs[e.child], e.role, refs[e.parent]) for e in graph.edges} == {
        ("scores:v1", Role.SUBJECT, "bot:v1"),
        ("scores:v1", Role.HELD_OUT, "held-out:v1"),
        ("bot:v1", Role.BASE, "tiny:v1"),
        ("bot:v1", Role.DATA, "tickets:v1"),
    }


def test_down_is_what_was_made_from_it(registry: Registry, tuned: Version) -> None:
    graph = registry.lineage.walk("tiny:v1", up=False)
    assert named(graph) == [("bot:v1", 1), ("scores:v1", 2), ("tiny:v1", 0)]
    assert graph.root == registry.catalog.resolve("tiny:v1").value


def test_a_walk_begins_at_a_value_or_any_reference(registry: Registry, tuned: Version) -> None:
    assert registry.lineage.walk(tuned.value) == registry.lineage.walk("bot")
    assert registry.lineage.walk(tuned.value) == registry.lineage.walk(f"bot@{tuned.digest}")
    with pytest.raises(ArtifactNotFound):
        registry.lineage.walk("nobody")


@pytest.mark.parametrize(
    ("depth", "found"), [(0, ["scores:v1"]), (1, ["bot:v1", "held-out:v1", "scores:v1"])]
)
def test_a_walk_goes_no_deeper_than_asked(
    registry: Registry, tuned: Version, depth: int, found: list[str]
) -> None:
    graph = registry.lineage.walk("scores:v1", depth=depth)
    assert sorted(node.refs[0] for node in graph.nodes) == found
    assert {edge.parent for edge in graph.edges} <= {node.value for node in graph.nodes}


def test_a_value_that_is_reached_by_two_ways_is_one_node_at_its_nearest(
    registry: Registry, make: Maker
) -> None:
    first = make.adapter("bot")
    second = make.adapter("bot", parents=[Parent(first.ref, Role.PARENT)])
    make.adapter("bot", parents=[Parent(first.ref, Role.PARENT), Parent(second.ref, Role.PARENT)])
    graph = registry.lineage.walk("bot:v3")
    assert named(graph) == [("bot:v1", 1), ("bot:v2", 1), ("bot:v3", 0)]
    assert len(graph.edges) == 3


def test_a_long_chain_is_walked_to_its_end(registry: Registry, make: Maker) -> None:
    make.adapter("bot")
    for number in range(1, 21):
        make.adapter("bot", parents=[Parent(f"bot:v{number}", Role.PARENT)])
    assert max(node.depth for node in registry.lineage.walk("bot:v21").nodes) == 20
    assert len(registry.lineage.walk("bot:v1", up=False).nodes) == 21


def test_a_braid_of_parents_is_walked_in_no_time(registry: Registry, make: Maker) -> None:
    """Each of 30 generations has both of the one before as parents: a milliard ways lead up."""
    parents: list[Parent] = []
    for _ in range(30):
        pair = [make.dataset("data", parents=parents) for _ in range(2)]
        parents = [Parent(version.ref, Role.PARENT) for version in pair]
    assert len(registry.lineage.walk("data:v60").nodes) == 59


def test_a_deleted_version_stays_in_the_lineage_without_its_name(registry: Registry, tuned: Version) -> None:
    registry.catalog.delete("tickets:v1")
    (unnamed,) = [node for node in registry.lineage.walk("bot:v1").nodes if not node.refs]
    assert (unnamed.kind, unnamed.depth) == ("dataset", 1)


def test_content_under_two_names_has_two_histories(registry: Registry, make: Maker, tmp_path: object) -> None:
    base = make.model("tiny")
    bot = make.adapter("bot", parents=[Parent(base.ref, Role.BASE)])
    assert named(registry.lineage.walk(bot.ref)) == [("bot:v1", 0), ("tiny:v1", 1)]


def test_a_value_is_found_by_the_beginning_of_its_id_or_digest_but_names_come_first(
    registry: Registry, make: Maker, tuned: Version
) -> None:
    for text in (tuned.value[:12], tuned.digest[7:19], tuned.digest[:20], tuned.digest):
        assert registry.lineage.walk(text).root == tuned.value
    with pytest.raises(ArtifactNotFound):
        registry.lineage.walk(tuned.value[:3])
    other = make.adapter(tuned.value[:4])
    assert registry.lineage.walk(tuned.value[:4]).root == other.value


def test_a_mistyped_name_is_answered_with_what_is_close_to_it(registry: Registry, tuned: Version) -> None:
    with pytest.raises(ArtifactNotFound) as missed:
        registry.lineage.walk("ticket:v1")
    assert missed.value.remedy.startswith("Did you mean tickets?")
