"""Declared objects: planned, then made so in one transaction, each owned by one app."""

from __future__ import annotations

from typing import Any

import pytest

from registry.errors import AliasMoved, InvalidApp
from registry.protocol import Registry
from registry.values import AppObject, ChangeKind
from tests.common.registries import Place


def gate(name: str, alias: str = "production", *, app: str = "support") -> AppObject:
    return AppObject(app, "gate", name, {"alias": alias, "artifact": "bot"})


def apply(registry: Registry, *objects: AppObject, app: str = "support") -> None:
    registry.apps.apply(app, objects, plan=registry.apps.plan(app, objects))


def planned(registry: Registry, *objects: AppObject, app: str = "support") -> dict[str, ChangeKind]:
    return {change.name: change.change for change in registry.apps.plan(app, objects)}


def stored(registry: Registry, **where: Any) -> dict[str, int]:
    return {found.name: found.revision for found in registry.apps.objects(**where)}


def test_a_plan_says_what_is_added_changed_kept_and_removed(registry: Registry) -> None:
    apply(registry, gate("kept"), gate("changed"), gate("removed"))
    assert planned(registry, gate("kept"), gate("changed", "candidate"), gate("added")) == {
        "added": ChangeKind.ADD,
        "changed": ChangeKind.CHANGE,
        "kept": ChangeKind.KEEP,
        "removed": ChangeKind.REMOVE,
    }
    assert stored(registry) == {"kept": 1, "changed": 1, "removed": 1}


def test_applying_makes_it_so_and_raises_the_revision_of_what_changed(registry: Registry) -> None:
    apply(registry, gate("kept"), gate("changed"), gate("removed"))
    apply(registry, gate("kept"), gate("changed", "candidate"), gate("added"))
    assert stored(registry) == {"added": 1, "changed": 2, "kept": 1}


def test_applying_again_changes_nothing(registry: Registry) -> None:
    apply(registry, gate("a"))
    assert set(planned(registry, gate("a")).values()) == {ChangeKind.KEEP}
    apply(registry, gate("a"))
    assert stored(registry) == {"a": 1}


def test_a_plan_that_somebody_has_overtaken_is_refused(registry: Registry, place: Place) -> None:
    mine = [gate("mine")]
    plan = registry.apps.plan("support", mine)
    apply(place.open("user:bob"), gate("theirs"))
    with pytest.raises(AliasMoved, match="deployed by somebody else"):
        registry.apps.apply("support", mine, plan=plan)
    assert stored(registry) == {"theirs": 1}


def test_an_object_belongs_to_one_app(registry: Registry) -> None:
    apply(registry, gate("accurate"))
    with pytest.raises(InvalidApp, match="belongs to app 'support'"):
        registry.apps.plan("sales", [gate("accurate", app="sales")])
    other = AppObject("sales", "trigger", "accurate", {})
    apply(registry, other, app="sales")
    assert stored(registry, kind="gate") == {"accurate": 1}
    assert stored(registry, app="sales") == {"accurate": 1}


def test_two_objects_of_one_kind_and_name_are_refused(registry: Registry) -> None:
    with pytest.raises(InvalidApp, match="two objects of one name"):
        registry.apps.plan("support", [gate("a"), gate("a", "candidate")])


def test_a_name_is_free_again_when_the_other_app_has_let_it_go(registry: Registry) -> None:
    apply(registry, gate("accurate"))
    apply(registry)
    apply(registry, gate("accurate", app="sales"), app="sales")
    assert [found.app for found in registry.apps.objects()] == ["sales"]


def test_what_is_stored_is_what_was_declared(registry: Registry) -> None:
    body = {"alias": "production", "nested": {"list": [1, 2.5, None, "ü"]}}
    apply(registry, AppObject("support", "trigger", "t", body))
    (found,) = registry.apps.objects()
    assert (found.body, found.kind, found.app) == (body, "trigger", "support")
