"""Artifacts and versions: published once, numbered without reuse, deleted only when nobody needs them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from registry.errors import (
    AliasNotFound,
    ArtifactNotFound,
    InvalidContent,
    InvalidInput,
    InvalidReference,
    KindMismatch,
    NotFound,
    VersionInUse,
    VersionNotFound,
)
from registry.events import EventType
from registry.store.stored import StoredRegistry
from registry.values import Parent, Role
from tests.common import content
from tests.common.registries import Maker, Place


def events(registry: StoredRegistry, type: EventType) -> list[str]:
    return [event.subject for event in registry.events.after(0) if event.type == type]


def test_versions_are_numbered_from_one_and_each_is_an_event(registry: StoredRegistry, make: Maker) -> None:
    first, second = make.adapter(), make.adapter()
    assert (first.ref, second.ref) == ("support-bot:v1", "support-bot:v2")
    assert events(registry, EventType.VERSION_PUBLISHED) == ["support-bot:v1", "support-bot:v2"]
    assert first.created_by == "user:ada"


def test_what_is_published_is_pulled_whole(registry: StoredRegistry, tmp_path: Path) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    published = registry.catalog.publish("support-bot", folder, "adapter")
    version = registry.catalog.pull("support-bot:v1", tmp_path / "pulled")
    assert content.read_folder(tmp_path / "pulled") == content.read_folder(folder)
    assert version == published.version
    assert registry.catalog.manifest(version.digest).digest == version.digest


def test_the_same_content_is_the_version_that_is_there(registry: StoredRegistry, tmp_path: Path) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    first = registry.catalog.publish("support-bot", folder, "adapter")
    again = registry.catalog.publish("support-bot", folder)
    assert (first.created, again.created) == (True, False)
    assert again.version == first.version
    assert again.bytes_sent == 0
    assert len(events(registry, EventType.VERSION_PUBLISHED)) == 1


def test_the_same_content_under_another_name_is_a_version_of_its_own(
    registry: StoredRegistry, tmp_path: Path
) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    first = registry.catalog.publish("support-bot", folder, "adapter").version
    other = registry.catalog.publish("router", folder, "adapter")
    assert other.created
    assert (other.version.digest, other.bytes_sent) == (first.digest, 0)


def test_a_new_name_needs_a_kind(registry: StoredRegistry, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kind is not known") as refusal:
        registry.catalog.publish("support-bot", content.write_adapter(tmp_path / "adapter"))
    assert "--kind" in refusal.value.remedy


def test_an_unknown_kind_is_refused_with_those_there_are(registry: StoredRegistry, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'lora' is not a kind") as refusal:
        registry.catalog.publish("support-bot", content.write_adapter(tmp_path / "adapter"), "lora")
    assert "adapter, model, dataset" in refusal.value.remedy
    assert registry.catalog.artifacts() == []


def test_an_artifact_keeps_its_kind(registry: StoredRegistry, make: Maker) -> None:
    make.adapter()
    with pytest.raises(KindMismatch, match="holds versions of kind adapter"):
        make.dataset("support-bot")


def test_content_that_its_kind_refuses_leaves_nothing_behind(
    registry: StoredRegistry, tmp_path: Path
) -> None:
    folder = content.write_dataset(tmp_path / "adapter", {"notes.txt": b"no adapter"})
    with pytest.raises(InvalidContent):
        registry.catalog.publish("support-bot", folder, "adapter")
    assert registry.catalog.artifacts() == []
    assert registry.events.after(0) == []


def test_an_unknown_parent_is_refused_before_anything_is_sent(
    registry: StoredRegistry, tmp_path: Path
) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    with pytest.raises(ArtifactNotFound):
        registry.catalog.publish("support-bot", folder, "adapter", parents=[Parent("tiny:v1", Role.BASE)])
    assert registry.catalog.artifacts() == []


def test_a_parent_must_be_of_a_kind_that_its_role_can_have(
    registry: StoredRegistry, make: Maker, tmp_path: Path
) -> None:
    make.dataset("held-out")
    folder = content.write_adapter(tmp_path / "adapter")
    with pytest.raises(KindMismatch, match="cannot be the base"):
        registry.catalog.publish("support-bot", folder, "adapter", parents=[Parent("held-out:v1", Role.BASE)])


def test_a_bare_name_cannot_be_a_parent(registry: StoredRegistry, make: Maker, tmp_path: Path) -> None:
    make.model("tiny")
    folder = content.write_adapter(tmp_path / "adapter")
    with pytest.raises(InvalidReference, match="which version to derive from"):
        registry.catalog.publish("support-bot", folder, "adapter", parents=[Parent("tiny", Role.BASE)])


def test_a_reference_resolves_by_number_alias_digest_or_to_the_newest(
    registry: StoredRegistry, make: Maker
) -> None:
    first, second = make.adapter(), make.adapter()
    registry.promotions.promote("support-bot:v1", "production")
    resolve = registry.catalog.resolve
    assert resolve("support-bot:v1").aliases == ("production",)
    assert resolve("support-bot:production").number == 1
    assert resolve(f"support-bot@{second.digest}").number == 2
    assert resolve("support-bot").number == 2
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("nobody:v1", ArtifactNotFound),
        ("nobody", ArtifactNotFound),
        ("support-bot:v9", VersionNotFound),
        ("support-bot:production", AliasNotFound),
        (f"support-bot@sha256:{'0' * 64}", VersionNotFound),
        ("support-bot:latest", InvalidReference),
    ],
)
def test_what_is_not_there_is_said_to_be_so(
    registry: StoredRegistry, make: Maker, reference: str, error: type[NotFound]
) -> None:
    make.adapter()
    with pytest.raises(error) as refusal:
        registry.catalog.resolve(reference)
    assert refusal.value.remedy


def test_tags_are_set_changed_and_removed(registry: StoredRegistry, make: Maker) -> None:
    make.adapter()
    registry.catalog.tag("support-bot:v1", {"team": "support", "stage": "trial"})
    version = registry.catalog.tag("support-bot:v1", {"team": "sales", "stage": None})
    assert version.tags == {"team": "sales"}
    assert registry.catalog.resolve("support-bot:v1").tags == {"team": "sales"}


@pytest.mark.parametrize("key", ["", "k" * 101, "a\nb"])
def test_a_tag_needs_a_name_that_can_be_read(registry: StoredRegistry, make: Maker, key: str) -> None:
    make.adapter()
    with pytest.raises(InvalidInput):
        registry.catalog.tag("support-bot:v1", {key: "x"})


def test_a_tag_that_could_not_be_kept_or_shown_is_refused(registry: StoredRegistry, make: Maker) -> None:
    make.adapter()
    with pytest.raises(InvalidInput, match="The tag 'team'"):
        registry.catalog.tag("support-bot:v1", {"team": "a\0b"})
    assert registry.catalog.resolve("support-bot:v1").tags == {}


def test_artifacts_are_listed_by_name_in_pages(registry: StoredRegistry, make: Maker) -> None:
    for name in ("bot-b", "bot-a", "other"):
        make.adapter(name)
    make.adapter("bot-a")
    names = [artifact.name for artifact in registry.catalog.artifacts("bot-*")]
    assert names == ["bot-a", "bot-b"]
    (page,) = registry.catalog.artifacts(limit=1, after="bot-a")
    assert page.name == "bot-b"
    first = registry.catalog.artifacts("bot-a")[0]
    assert (first.versions, first.newest, first.kind) == (2, 2, "adapter")
    assert first.bytes_total == sum(version.size for version in registry.catalog.versions("bot-a"))


@pytest.mark.parametrize(("pattern", "found"), [("a?b", ["a-b", "a_b"]), ("a_b", ["a_b"]), ("a%", [])])
def test_only_star_and_question_mark_are_wild(
    registry: StoredRegistry, make: Maker, pattern: str, found: list[str]
) -> None:
    make.adapter("a-b")
    make.adapter("a_b")
    assert [artifact.name for artifact in registry.catalog.artifacts(pattern)] == found


def test_versions_are_listed_newest_first_in_pages(registry: StoredRegistry, make: Maker) -> None:
    for _ in range(3):
        make.adapter()
    numbers = [version.number for version in registry.catalog.versions("support-bot", limit=2)]
    assert numbers == [3, 2]
    assert [version.number for version in registry.catalog.versions("support-bot", before=2)] == [1]


def test_a_deleted_version_is_gone_and_its_number_is_not_used_again(
    registry: StoredRegistry, make: Maker
) -> None:
    make.adapter()
    make.adapter()
    assert registry.catalog.delete("support-bot:v2").number == 2
    with pytest.raises(VersionNotFound):
        registry.catalog.resolve("support-bot:v2")
    assert registry.catalog.resolve("support-bot").number == 1
    assert make.adapter().number == 3


def test_content_that_was_deleted_may_be_published_again_under_a_new_number(
    registry: StoredRegistry, tmp_path: Path
) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    registry.catalog.publish("support-bot", folder, "adapter")
    registry.catalog.delete("support-bot:v1")
    again = registry.catalog.publish("support-bot", folder)
    assert (again.created, again.version.number) == (True, 2)


def test_deleting_needs_an_explicit_version(registry: StoredRegistry, make: Maker) -> None:
    make.adapter()
    with pytest.raises(InvalidReference, match="which version to delete"):
        registry.catalog.delete("support-bot")


def test_a_version_that_an_alias_holds_is_not_deleted(registry: StoredRegistry, make: Maker) -> None:
    make.adapter()
    registry.promotions.promote("support-bot:v1", "production")
    with pytest.raises(VersionInUse, match="'support-bot:production' is at it"):
        registry.catalog.delete("support-bot:v1")
    assert registry.catalog.resolve("support-bot:production").number == 1


def test_a_version_within_the_rollback_window_is_not_deleted(
    registry: StoredRegistry, make: Maker, place: Place
) -> None:
    make.adapter()
    make.adapter()
    registry.promotions.promote("support-bot:v1", "production")
    registry.promotions.promote("support-bot:v2", "production")
    with pytest.raises(VersionInUse, match="within the last 30 days") as refusal:
        registry.catalog.delete("support-bot:v1")
    assert "PODIUM_ROLLBACK_WINDOW" in refusal.value.remedy
    impatient = place.open(rollback_window=0)
    assert impatient.catalog.delete("support-bot:v1").number == 1


def test_the_rollback_window_begins_when_the_alias_left_the_version(
    registry: StoredRegistry, make: Maker, place: Place
) -> None:
    make.adapter()
    make.adapter()
    registry.promotions.promote("support-bot:v1", "production")
    if not isinstance(registry, StoredRegistry):
        pytest.skip("the clock is the server's, and out of a client's reach")
    real = registry._session.database.now
    registry._session.database.now = lambda: real() + timedelta(days=40)  # it was there for long
    registry.promotions.promote("support-bot:v2", "production")
    with pytest.raises(VersionInUse, match="within the last 30 days"):
        registry.catalog.delete("support-bot:v1")
    registry._session.database.now = lambda: real() + timedelta(days=71)
    assert registry.catalog.delete("support-bot:v1").number == 1


def test_content_stored_for_a_run_is_readable_but_no_version(
    registry: StoredRegistry, tmp_path: Path
) -> None:
    stored = registry.catalog.store(content.write_dataset(tmp_path / "data", {"a.txt": b"hello"}), "dataset")
    assert registry.catalog.read(stored.digest, "a.txt") == b"hello"
    assert registry.catalog.artifacts() == []


def test_reading_what_is_not_there_names_it(registry: StoredRegistry, make: Maker) -> None:
    version = make.dataset()
    with pytest.raises(NotFound, match=r"no file 'b\.txt'"):
        registry.catalog.read(version.digest, "b.txt")
    with pytest.raises(NotFound, match="no content"):
        registry.catalog.manifest("sha256:" + "0" * 64)


def test_metadata_is_kept_with_the_version(registry: StoredRegistry, tmp_path: Path) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    registry.catalog.publish("support-bot", folder, "adapter", metadata={"rank": 4, "lr": 2e-4})
    assert registry.catalog.resolve("support-bot").metadata == {"rank": 4, "lr": 2e-4}
