"""Aliases move in one transaction, to what was expected, with a history and one event each."""

from __future__ import annotations

from datetime import timedelta

import pytest

from registry.errors import (
    AliasHeld,
    AliasMoved,
    AliasNotFound,
    ArtifactNotFound,
    InvalidInput,
    InvalidReference,
    Refused,
    VersionNotFound,
)
from registry.events import EventType
from registry.protocol import Registry
from registry.values import Action, Event, Origin
from tests.common.registries import Maker, Place


@pytest.fixture(autouse=True)
def three_versions(make: Maker) -> None:
    for _ in range(3):
        make.adapter("bot")


def moves(registry: Registry) -> list[Event]:
    wanted = (EventType.ALIAS_PROMOTED, EventType.ALIAS_ROLLED_BACK)
    return [event for event in registry.events.after(0) if event.type in wanted]


def refusals(registry: Registry) -> list[Event]:
    return [event for event in registry.events.after(0) if event.type == EventType.PROMOTION_REFUSED]


def promote(registry: Registry, *numbers: int) -> None:
    for number in numbers:
        registry.promotions.promote(f"bot:v{number}", "production")


def trigger(registry: Registry) -> Registry:
    return registry.acting(Origin("trigger:support/roll"))


def test_a_promotion_moves_the_alias_and_writes_history_and_event(registry: Registry) -> None:
    promotion = registry.promotions.promote("bot:v2", "production", reason="better answers")
    assert registry.promotions.get("bot", "production").version == 2
    assert registry.promotions.history("bot", "production") == [promotion]
    (event,) = moves(registry)
    assert (event.id, event.subject, event.key, event.actor) == (
        promotion.event,
        "bot:production",
        "bot",
        "user:ada",
    )
    assert event.data["from_version"] is None
    assert (event.data["to_version"], event.data["generation"]) == (2, 1)
    assert event.data["reason"] == "better answers"
    assert event.data["to_digest"] == promotion.to_digest == registry.catalog.resolve("bot:v2").digest


def test_each_move_is_a_generation(registry: Registry) -> None:
    promote(registry, 1, 2)
    history = registry.promotions.history("bot", "production")
    assert [(p.generation, p.from_version, p.to_version) for p in history] == [(2, 1, 2), (1, None, 1)]
    assert registry.promotions.promotion("bot", "production", 1) == history[1]


def test_aliases_of_one_artifact_move_apart(registry: Registry) -> None:
    promote(registry, 1)
    registry.promotions.promote("bot:v2", "candidate")
    assert [(a.name, a.version, a.generation) for a in registry.promotions.aliases("bot")] == [
        ("candidate", 2, 1),
        ("production", 1, 1),
    ]
    assert [p.alias for p in registry.promotions.history("bot")] == ["candidate", "production"]


def test_one_alias_is_promoted_from_another(registry: Registry) -> None:
    registry.promotions.promote("bot:v3", "candidate")
    assert registry.promotions.promote("bot:candidate", "production").to_version == 3


def test_promoting_to_where_the_alias_is_changes_nothing_and_says_so(registry: Registry) -> None:
    first = registry.promotions.promote("bot:v1", "production", reason="first")
    again = registry.promotions.promote("bot:v1", "production", reason="again")
    assert not again.changed
    assert (again.generation, again.reason) == (1, "first")
    assert registry.promotions.history("bot") == [first]
    assert len(moves(registry)) == 1


@pytest.mark.parametrize("expect", [None, 2, 99])
def test_an_alias_that_is_not_where_it_was_expected_stays(registry: Registry, expect: int | None) -> None:
    promote(registry, 1)
    with pytest.raises(AliasMoved, match=r"is at v1 \(generation 1\), not at") as refusal:
        registry.promotions.promote("bot:v3", "production", expect=expect)
    assert refusal.value.details == {"version": 1, "generation": 1}
    assert registry.promotions.get("bot", "production").version == 1
    assert len(moves(registry)) == 1


def test_an_alias_that_was_expected_and_does_not_exist_is_not_made(registry: Registry) -> None:
    with pytest.raises(AliasMoved, match="does not exist, and was expected"):
        registry.promotions.promote("bot:v1", "production", expect=1)
    with pytest.raises(AliasNotFound):
        registry.promotions.get("bot", "production")


def test_what_was_expected_lets_it_move(registry: Registry) -> None:
    registry.promotions.promote("bot:v1", "production", expect=None)
    registry.promotions.promote("bot:v2", "production", expect=1)
    promotion = registry.promotions.promote("bot:v3", "production", expect_generation=2)
    assert promotion.generation == 3


def test_a_stale_generation_is_told_though_the_version_is_the_same_again(registry: Registry) -> None:
    promote(registry, 1, 2, 1)
    with pytest.raises(AliasMoved, match="not at generation 1"):
        registry.promotions.promote("bot:v3", "production", expect=1, expect_generation=1)


@pytest.mark.parametrize(
    ("reference", "alias", "error"),
    [
        ("bot", "production", InvalidReference),
        ("bot:v9", "production", VersionNotFound),
        ("nobody:v1", "production", ArtifactNotFound),
        ("bot:candidate", "production", AliasNotFound),
        ("bot:v1", "v7", InvalidReference),
        ("bot:v1", "latest", InvalidReference),
        ("bot:v1", "Prod", InvalidReference),
        ("bot:v1", "", InvalidReference),
    ],
)
def test_bad_input_moves_nothing(
    registry: Registry, reference: str, alias: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        registry.promotions.promote(reference, alias)
    assert registry.promotions.aliases("bot") == []
    assert moves(registry) == refusals(registry) == []


def test_a_deleted_version_cannot_be_promoted(registry: Registry) -> None:
    registry.catalog.delete("bot:v2")
    with pytest.raises(VersionNotFound):
        registry.promotions.promote("bot:v2", "production")


def test_a_rollback_goes_to_the_version_before_and_twice_goes_two_back(registry: Registry) -> None:
    promote(registry, 1, 2, 3)
    first = registry.promotions.rollback("bot", "production", reason="wrong routes")
    second = registry.promotions.rollback("bot", "production")
    assert [(p.action, p.from_version, p.to_version) for p in (first, second)] == [
        (Action.ROLLBACK, 3, 2),
        (Action.ROLLBACK, 2, 1),
    ]
    assert [event.type for event in moves(registry)][-2:] == [EventType.ALIAS_ROLLED_BACK] * 2
    with pytest.raises(Refused, match="no earlier version"):
        registry.promotions.rollback("bot", "production")
    assert registry.promotions.get("bot", "production").generation == 5


def test_a_rollback_to_a_named_version_needs_that_it_held_the_alias(registry: Registry) -> None:
    promote(registry, 1, 2)
    with pytest.raises(Refused, match="v3 never was 'bot:production'") as refusal:
        registry.promotions.rollback("bot", "production", to=3)
    assert "podium promote bot:v3 production" in refusal.value.remedy
    with pytest.raises(Refused, match="is at v2 already"):
        registry.promotions.rollback("bot", "production", to=2)
    with pytest.raises(VersionNotFound):
        registry.promotions.rollback("bot", "production", to=9)
    assert registry.promotions.rollback("bot", "production", to=1).to_version == 1


def test_an_alias_that_is_not_there_cannot_be_rolled_back(registry: Registry) -> None:
    with pytest.raises(AliasNotFound):
        registry.promotions.rollback("bot", "production")
    with pytest.raises(ArtifactNotFound):
        registry.promotions.rollback("nobody", "production")


def test_a_rollback_passes_over_a_version_that_was_deleted(registry: Registry, place: Place) -> None:
    promote(registry, 1, 2, 3)
    place.open(rollback_window=0).catalog.delete("bot:v2")
    assert registry.promotions.rollback("bot", "production").to_version == 1


def test_a_rollback_holds_the_alias_against_triggers_and_not_against_people(registry: Registry) -> None:
    promote(registry, 1, 2)
    registry.promotions.rollback("bot", "production", reason="it insults customers")
    held = registry.promotions.get("bot", "production")
    assert (held.held_by, held.hold_reason) == ("user:ada", "it insults customers")
    with pytest.raises(AliasHeld, match="it insults customers") as refusal:
        trigger(registry).promotions.promote("bot:v3", "production")
    assert "podium release bot production" in refusal.value.remedy
    (event,) = refusals(registry)
    assert (event.data["error"], event.data["version"], event.actor) == (
        "alias_held",
        3,
        "trigger:support/roll",
    )
    promote(registry, 3)
    assert registry.promotions.get("bot", "production").version == 3


def test_a_hold_outlives_a_persons_promotion_until_it_is_released(registry: Registry) -> None:
    promote(registry, 1, 2)
    registry.promotions.rollback("bot", "production")
    promote(registry, 2)
    with pytest.raises(AliasHeld):
        trigger(registry).promotions.promote("bot:v3", "production")
    assert registry.promotions.release("bot", "production").held_by is None
    assert trigger(registry).promotions.promote("bot:v3", "production").actor == "trigger:support/roll"


def test_only_the_end_of_a_hold_is_an_event(registry: Registry) -> None:
    promote(registry, 1, 2)
    registry.promotions.release("bot", "production")
    registry.promotions.rollback("bot", "production")
    registry.promotions.release("bot", "production")
    registry.promotions.release("bot", "production")
    released = [event for event in registry.events.after(0) if event.type == EventType.ALIAS_RELEASED]
    assert [event.subject for event in released] == ["bot:production"]


def test_a_revert_undoes_the_generation_that_failed_and_holds_nothing(registry: Registry) -> None:
    promote(registry, 1, 2)
    serving = registry.acting(Origin("system:serving"))
    reverted = serving.promotions.revert("bot", "production", failed_generation=2, reason="rank 64")
    assert reverted is not None
    assert (reverted.action, reverted.to_version, reverted.generation) == (Action.REVERT, 1, 3)
    assert registry.promotions.get("bot", "production").held_by is None


def test_a_revert_of_an_alias_that_has_moved_on_does_nothing(registry: Registry) -> None:
    promote(registry, 1, 2, 3)
    assert registry.promotions.revert("bot", "production", failed_generation=2, reason="late") is None
    assert registry.promotions.get("bot", "production").version == 3


def test_a_first_version_that_failed_has_nothing_to_be_put_back_to(registry: Registry) -> None:
    promote(registry, 1)
    assert registry.promotions.revert("bot", "production", failed_generation=1, reason="bad") is None


def test_history_keeps_who_and_when(registry: Registry, place: Place) -> None:
    promote(registry, 1)
    place.open("user:bob").promotions.promote("bot:v2", "production")
    later, earlier = registry.promotions.history("bot", "production")
    assert (earlier.actor, later.actor) == ("user:ada", "user:bob")
    assert timedelta(0) <= later.at - earlier.at < timedelta(minutes=1)


def test_history_is_read_newest_first_and_no_more_than_asked_for(registry: Registry) -> None:
    promote(registry, 1, 2, 3)
    assert [p.generation for p in registry.promotions.history("bot", limit=2)] == [3, 2]


def test_history_of_what_is_not_there_is_an_error(registry: Registry) -> None:
    with pytest.raises(ArtifactNotFound):
        registry.promotions.history("nobody")
    with pytest.raises(AliasNotFound):
        registry.promotions.history("bot", "production")
    with pytest.raises(AliasNotFound, match="no generation 7"):
        registry.promotions.promotion("bot", "production", 7)


@pytest.mark.parametrize("reason", ["x" * 2001, "a\0b", "\x1b[31mred", "\udcff"])
def test_a_reason_that_could_not_be_kept_or_shown_is_refused(registry: Registry, reason: str) -> None:
    promote(registry, 1, 2)
    with pytest.raises(InvalidInput, match="The reason"):
        registry.promotions.promote("bot:v3", "production", reason=reason)
    with pytest.raises(InvalidInput, match="The reason"):
        registry.promotions.rollback("bot", "production", reason=reason)
    assert registry.promotions.get("bot", "production").generation == 2


def test_a_reason_may_be_any_text_in_any_script(registry: Registry) -> None:
    reason = "besser, \u4e00\u70b9; 'quoted' \"twice\" {braces} %s [bold]\n\tnext line"
    registry.promotions.promote("bot:v1", "production", reason=reason)
    assert registry.promotions.history("bot")[0].reason == reason
