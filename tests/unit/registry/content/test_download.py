from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from registry import crashpoints
from registry.content import download
from registry.content.blobs.local import LocalStore
from registry.content.cache import ChunkCache
from registry.content.download import materialise
from registry.content.manifest import FileEntry, Manifest
from registry.content.reading import ChunkSource, read_headers, read_range
from registry.errors import ContentDamaged, InvalidInput, StoreFull
from tests.common.content import (
    StoreBehind,
    read_folder,
    some_bytes,
    stored,
    write_adapter,
    write_dataset,
)

_FILES = {"a.bin": some_bytes(300_000, 1), "deep/er/b.txt": b"text", "empty.txt": b""}


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def manifest(tmp_path: Path, local: LocalStore) -> Manifest:
    """Content with a file of several chunks, one of one chunk, one empty."""
    folder = write_dataset(write_adapter(tmp_path / "content"), _FILES)
    return stored(folder, local)


@pytest.fixture
def remote(local: LocalStore) -> StoreBehind:
    return StoreBehind(local)


@pytest.fixture
def cache(tmp_path: Path) -> ChunkCache:
    return ChunkCache(tmp_path / "cache", 1 << 30)


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cached(tmp_path: Path) -> dict[str, Path]:
    return {path.name: path for path in (tmp_path / "cache" / "chunks").rglob("*") if path.is_file()}


def _siblings(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.iterdir()}


def test_what_a_killed_download_left_is_removed_and_what_another_writes_is_not(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    written = write_dataset(tmp_path / ".out.1.partial", _FILES)
    write_dataset(tmp_path / ".out.2.partial", _FILES)
    write_dataset(tmp_path / ".output.3.partial", _FILES)
    writer = os.open(written, os.O_RDONLY)
    fcntl.flock(writer, fcntl.LOCK_EX)
    materialise(manifest, tmp_path / "out", local)
    os.close(writer)
    assert {name for name in _siblings(tmp_path) if name.startswith(".")} == {
        ".out.1.partial",
        ".output.3.partial",
    }


def test_the_folder_has_exactly_the_files(tmp_path: Path, local: LocalStore, manifest: Manifest) -> None:
    materialise(manifest, tmp_path / "out", local)
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "content")


def test_an_empty_folder_and_a_missing_parent_are_fine_destinations(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new" / "parent" / "out"):
        materialise(manifest, out, local)
        assert read_folder(out) == read_folder(tmp_path / "content")


def test_many_files_of_many_chunks_share_few_buffers(
    tmp_path: Path, local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(12):
        write_adapter(tmp_path / "content" / str(n), seed=n)
        write_dataset(tmp_path / "content", {f"{n}.bin": some_bytes(20_000, n)})
    monkeypatch.setattr("registry.content.chunking.LARGEST", 1000)
    manifest = stored(tmp_path / "content", local)
    assert len(manifest.chunks()) > 200
    materialise(manifest, tmp_path / "out", local)
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "content")


@pytest.mark.parametrize("make", [lambda out: out.write_text("x"), lambda out: out.symlink_to("content")])
def test_a_destination_that_is_something_else_is_refused(
    tmp_path: Path, local: LocalStore, manifest: Manifest, make: Any
) -> None:
    make(tmp_path / "out")
    with pytest.raises(InvalidInput, match="is there and is not a folder"):
        materialise(manifest, tmp_path / "out", local)


def test_a_folder_with_something_in_it_is_refused_and_kept(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    write_dataset(tmp_path / "out", {"mine.txt": b"mine"})
    with pytest.raises(InvalidInput, match="is not empty"):
        materialise(manifest, tmp_path / "out", local)
    assert read_folder(tmp_path / "out") == {"mine.txt": b"mine"}


def test_what_is_handed_out_is_no_link_into_store_or_cache(
    tmp_path: Path, remote: StoreBehind, cache: ChunkCache, manifest: Manifest
) -> None:
    materialise(manifest, tmp_path / "out", remote, cache=cache)
    for path in (tmp_path / "out").rglob("*.*"):
        assert path.stat().st_nlink == 1
        path.write_bytes(b"scribble")
    materialise(manifest, tmp_path / "again", remote, cache=cache)
    assert read_folder(tmp_path / "again") == read_folder(tmp_path / "content")


def test_a_remote_chunk_is_fetched_once(
    tmp_path: Path, remote: StoreBehind, cache: ChunkCache, manifest: Manifest
) -> None:
    materialise(manifest, tmp_path / "one", remote, cache=cache)
    assert sorted(remote.read_keys) == sorted(manifest.chunks())
    remote.read_keys.clear()
    materialise(manifest, tmp_path / "two", remote, cache=cache)
    assert remote.read_keys == []
    assert read_folder(tmp_path / "two") == read_folder(tmp_path / "content")


def test_a_store_on_this_machine_is_not_cached(
    tmp_path: Path, local: LocalStore, cache: ChunkCache, manifest: Manifest
) -> None:
    materialise(manifest, tmp_path / "out", local, cache=cache)
    assert not (tmp_path / "cache").exists()


def test_a_damaged_chunk_in_the_cache_is_dropped_and_fetched_again(
    tmp_path: Path, remote: StoreBehind, cache: ChunkCache, manifest: Manifest
) -> None:
    materialise(manifest, tmp_path / "one", remote, cache=cache)
    remote.read_keys.clear()
    for path in _cached(tmp_path).values():
        _damage(path)
    materialise(manifest, tmp_path / "two", remote, cache=cache)
    assert read_folder(tmp_path / "two") == read_folder(tmp_path / "content")
    assert set(remote.read_keys) == set(manifest.chunks())
    remote.read_keys.clear()
    materialise(manifest, tmp_path / "three", remote, cache=cache)
    assert remote.read_keys == []


def test_a_chunk_cut_short_in_the_cache_is_fetched_again(
    tmp_path: Path, remote: StoreBehind, cache: ChunkCache, manifest: Manifest
) -> None:
    materialise(manifest, tmp_path / "one", remote, cache=cache)
    for path in _cached(tmp_path).values():
        os.truncate(path, 0)
    materialise(manifest, tmp_path / "two", remote, cache=cache)
    assert read_folder(tmp_path / "two") == read_folder(tmp_path / "content")


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("path", ["a.bin", "adapter_model.safetensors"])
def test_a_chunk_damaged_in_the_store_is_named_with_its_file_and_nothing_is_written(
    tmp_path: Path, local: LocalStore, manifest: Manifest, cache: ChunkCache, is_remote: bool, path: str
) -> None:
    chunk = _entry(manifest, path).chunks[-1]
    _damage(local.path(chunk.key))
    store = StoreBehind(local) if is_remote else local
    with pytest.raises(ContentDamaged, match=f"{path}: Chunk {chunk.key} .*is damaged") as raised:
        materialise(manifest, tmp_path / "out", store, cache=cache)
    assert raised.value.details == {"chunk": chunk.key, "path": path}
    assert _siblings(tmp_path) - {"cache"} == {"store", "content"}
    assert chunk.key not in _cached(tmp_path)
    local.delete(chunk.key)
    stored(tmp_path / "content", local)  # pushing the files again mends the store
    materialise(manifest, tmp_path / "out", store, cache=cache)
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "content")


def test_a_chunk_missing_in_the_store_is_named_with_its_file_and_nothing_is_written(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    chunk = _entry(manifest, "a.bin").chunks[0]
    local.delete(chunk.key)
    with pytest.raises(ContentDamaged, match=rf"a\.bin: Chunk {chunk.key} is not in the store"):
        materialise(manifest, tmp_path / "out", local)
    assert _siblings(tmp_path) == {"store", "content"}


def test_an_index_of_chunks_that_lies_about_a_file_is_caught_by_the_files_digest(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    true = _entry(manifest, "adapter_model.safetensors")
    lying = FileEntry(true.path, true.size, true.sha256, tuple(reversed(true.chunks)))
    with pytest.raises(ContentDamaged, match=r"adapter_model\.safetensors as it is stored"):
        materialise(Manifest((lying,)), tmp_path / "out", local)


def test_a_pull_that_ends_before_the_last_rename_leaves_nothing(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    def fail(point: str) -> None:
        assert point == "download.written"
        assert not (tmp_path / "out").exists()
        raise KeyboardInterrupt

    with crashpoints.observed_by(fail), pytest.raises(KeyboardInterrupt):
        materialise(manifest, tmp_path / "out", local)
    assert _siblings(tmp_path) == {"store", "content"}


def test_a_disk_without_room_is_said_and_leaves_nothing(
    tmp_path: Path, local: LocalStore, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download, "write_all", write)
    with pytest.raises(StoreFull, match="no room for"):
        materialise(manifest, tmp_path / "out", local)
    assert _siblings(tmp_path) == {"store", "content"}


def test_two_pulls_to_one_place_leave_one_whole_folder(
    tmp_path: Path, local: LocalStore, manifest: Manifest
) -> None:
    both = threading.Barrier(2)
    refused: list[InvalidInput] = []

    def pull() -> None:
        try:
            materialise(manifest, tmp_path / "out", local)
        except InvalidInput as error:
            refused.append(error)

    with crashpoints.observed_by(lambda _: both.wait(10) and None):
        threads = [threading.Thread(target=pull) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 1
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "content")
    assert _siblings(tmp_path) == {"store", "content", "out"}


def _entry(manifest: Manifest, path: str) -> FileEntry:
    entry = manifest.get(path)
    assert entry is not None
    return entry


def test_a_range_of_a_file_is_read_across_its_chunks(
    local: LocalStore, manifest: Manifest, tmp_path: Path
) -> None:
    entry = _entry(manifest, "adapter_model.safetensors")
    data = (tmp_path / "content" / entry.path).read_bytes()
    source = ChunkSource(local)
    assert len(entry.chunks) > 1
    assert read_range(entry, source) == data
    middle = entry.chunks[0].size
    assert read_range(entry, source, middle - 3, 6) == data[middle - 3 : middle + 3]
    assert read_range(entry, source, entry.size - 2, 100) == data[-2:]
    assert read_range(entry, source, entry.size, 1) == b""


def test_a_whole_file_that_is_read_is_verified(local: LocalStore, manifest: Manifest) -> None:
    entry = _entry(manifest, "a.bin")
    _damage(local.path(entry.chunks[0].key))
    with pytest.raises(ContentDamaged, match=r"a\.bin as it is stored"):
        read_range(entry, ChunkSource(local))


def test_headers_are_read_without_the_tensors(remote: StoreBehind, manifest: Manifest) -> None:
    headers = read_headers(manifest, ChunkSource(remote))
    assert len(headers["adapter_model.safetensors"].tensors) == 4
    assert set(remote.read_keys) == {_entry(manifest, "adapter_model.safetensors").chunks[0].key}
