"""The folder store keeps the rules of the port, and those of a disk."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from registry.content.blobs import committing
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
    # The bytes, and then the three folders that lead to the name.
    assert seen == [[], *[[key_of(b"data")]] * 3]


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


def test_a_buffer_may_be_used_again_before_the_chunk_is_durable(tmp_path: Path) -> None:
    store = _local(tmp_path)
    buffer = bytearray(b"data")
    stored = store.put_soon(key_of(b"data"), buffer)
    buffer[:] = b"next"
    stored.result(10)
    assert store.read(key_of(b"data")) == b"data"


def test_when_the_disk_fails_for_some_of_many_chunks_only_those_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _local(tmp_path)
    bad = {key_of(bytes([n])) for n in range(0, 40, 3)}
    real = committing._sync

    def sync(written: Any) -> None:
        if written.final.name in bad:
            raise OSError(errno.EIO, "Input/output error")
        real(written)

    monkeypatch.setattr(committing, "_sync", sync)
    puts = {key_of(bytes([n])): store.put_soon(key_of(bytes([n])), bytes([n])) for n in range(40)}
    failed = {key for key, stored in puts.items() if stored.exception(10) is not None}
    assert failed == bad == store.missing(puts)
    assert isinstance(puts[min(bad)].exception(), StoreUnavailable)
    assert list((tmp_path / "store" / "aside").iterdir()) == []
