"""The folder store keeps the rules of the port, and those of a disk."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from registry.content.blobs import open_store as open_url
from registry.content.blobs.local import LocalStore
from registry.errors import InvalidSetting, StoreFull, StoreUnavailable
from tests.common.blob_store_suite import BlobStoreSuite, OpenStore, key_of


class TestLocalStore(BlobStoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: open_url(f"file://{tmp_path}/store")


def _local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_an_address_with_escapes_names_the_folder_it_means(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "with space #1")
    again = open_url(store.url)
    store.put(key_of(b"x"), b"x")
    assert again.read(key_of(b"x")) == b"x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store",
        "/store",
        "file://store",
        "file:store",
        "http://host/x",
        "s3://",
        "s3:bucket",
        "s3://k:secret@b",
    ],
)
def test_an_address_of_no_known_shape_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        open_url(url)
    assert "PODIUM_BLOBS" in raised.value.remedy
    assert "secret" not in raised.value.message


def test_a_folder_that_cannot_be_made_is_an_unavailable_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="cannot open the store"):
        LocalStore(tmp_path / "file" / "store")


def test_a_chunk_has_its_name_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _local(tmp_path)
    seen: list[list[str]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append([info.key for info in store.list()])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put(key_of(b"data"), b"data")
    # Two new folders, the bytes, and at last the folder that has the name.
    assert seen == [[], [], [], [key_of(b"data")]]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_is_a_full_store_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = _local(tmp_path)

    def write(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StoreFull, match="no room left"):
        store.put(key_of(b"data"), b"data")
    monkeypatch.undo()
    assert list(store.list()) == []
    assert list((tmp_path / "store" / "aside").iterdir()) == []


def test_a_chunk_cut_short_by_the_disk_is_written_again(tmp_path: Path) -> None:
    store = _local(tmp_path)
    store.put(key_of(b"data"), b"data")
    os.truncate(store.path(key_of(b"data")), 2)
    store.put(key_of(b"data"), b"data")
    assert store.read(key_of(b"data")) == b"data"


def test_leftovers_of_a_crash_are_removed_when_they_are_old(tmp_path: Path) -> None:
    store = _local(tmp_path)
    old, new = (tmp_path / "store" / "aside" / name for name in ("old", "new"))
    for path in (old, new):
        path.write_text("x")
    os.utime(old, (time.time() - 100_000,) * 2)
    store.claim("database-1")
    assert not old.exists()
    assert new.exists()
