"""A database and its blob store name each other."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from registry.errors import InvalidSetting
from tests.common.content import write_adapter
from tests.common.registries import Place


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "adapter")


@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("servers", marks=pytest.mark.integration)], indirect=True
)
def test_contents_cannot_be_scattered_over_two_stores(place: Place, adapter: Path, tmp_path: Path) -> None:
    place.open().catalog.publish("bot", adapter, "adapter")
    elsewhere = place.open(blobs=f"file://{tmp_path}/elsewhere")
    with pytest.raises(InvalidSetting, match="The contents of this database are in the store"):
        elsewhere.catalog.publish("other-bot", adapter, "adapter")
    assert not (tmp_path / "elsewhere" / "store.json").exists()
    assert [found.name for found in place.open().catalog.artifacts()] == ["bot"]


def test_a_store_that_was_copied_with_its_mark_is_the_same_store(
    sqlite_place: Place, adapter: Path, tmp_path: Path
) -> None:
    sqlite_place.open().catalog.publish("bot", adapter, "adapter")
    shutil.copytree(sqlite_place.settings.home / "blobs", tmp_path / "moved")
    moved = sqlite_place.open(blobs=f"file://{tmp_path}/moved")
    moved.catalog.pull("bot:v1", tmp_path / "pulled")
    assert (tmp_path / "pulled" / "adapter_config.json").exists()


def test_an_emptied_store_is_not_taken_for_a_new_one(sqlite_place: Place, adapter: Path) -> None:
    sqlite_place.open().catalog.publish("bot", adapter, "adapter")
    shutil.rmtree(sqlite_place.settings.home / "blobs")
    with pytest.raises(InvalidSetting, match="has nothing of it"):
        sqlite_place.open().catalog.publish("bot", adapter, "adapter")


def test_of_two_stores_that_are_used_first_at_once_one_becomes_the_databases(
    sqlite_place: Place, adapter: Path, tmp_path: Path
) -> None:
    def publish(number: int) -> bool:
        registry = sqlite_place.open(blobs=f"file://{tmp_path}/store-{number}")
        try:
            registry.catalog.publish("bot", adapter, "adapter")
        except InvalidSetting:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(publish, range(4))) == 1


def test_the_root_of_the_file_system_is_no_store(sqlite_place: Place, adapter: Path) -> None:
    with pytest.raises(InvalidSetting, match="names the root of the file system"):
        sqlite_place.open(blobs="file:///").catalog.publish("bot", adapter, "adapter")
