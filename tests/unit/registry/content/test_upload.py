from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from registry import crashpoints
from registry.content.blobs.local import LocalStore
from registry.content.blobs.store import Buffer
from registry.content.chunking import LARGEST, SMALL
from registry.content.manifest import ChunkRef
from registry.content.scan import scan
from registry.content.upload import Uploaded, upload
from registry.errors import InvalidContent, StoreFull
from tests.common.content import StoreBehind, some_bytes, stored, write_adapter, write_dataset, write_model


@pytest.fixture
def store(tmp_path: Path) -> StoreBehind:
    return StoreBehind(LocalStore(tmp_path / "store"))


@pytest.fixture
def content(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "content", {"a.txt": b"aaaa", "b/c.txt": b"cc", "empty.txt": b""})


def _push(folder: Path, store: StoreBehind) -> Uploaded:
    return upload(scan(folder), store)


def test_every_file_is_stored_with_its_size_and_digest(content: Path, store: StoreBehind) -> None:
    sent = _push(content, store)
    found = {entry.path: (entry.size, entry.sha256) for entry in sent.manifest.files}
    assert found == {
        path: (len(data), hashlib.sha256(data).hexdigest())
        for path, data in {"a.txt": b"aaaa", "b/c.txt": b"cc", "empty.txt": b""}.items()
    }
    for chunk in sent.manifest.chunks().values():
        assert hashlib.sha256(store.read(chunk.key)).hexdigest() == chunk.key
    assert (sent.bytes_total, sent.bytes_sent, sent.chunks_sent) == (6, 6, 2)


def test_a_file_of_many_chunks_has_the_digest_of_the_whole(tmp_path: Path, store: StoreBehind) -> None:
    data = some_bytes(100_000) * (2 * LARGEST // 100_000 + 1)
    write_dataset(tmp_path / "content", {"big.bin": data})
    (entry,) = _push(tmp_path / "content", store).manifest.files
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    assert b"".join(store.read(chunk.key) for chunk in entry.chunks) == data
    assert len(entry.chunks) == 3


def test_the_same_content_has_the_same_manifest_and_is_sent_once(content: Path, store: StoreBehind) -> None:
    first, second = _push(content, store), _push(content, store)
    assert second.manifest == first.manifest
    assert (second.bytes_sent, second.chunks_sent) == (0, 0)


def test_a_chunk_that_a_disk_has_cut_short_is_mended_by_pushing_again(content: Path, tmp_path: Path) -> None:
    local = LocalStore(tmp_path / "store")
    (entry, *_) = upload(scan(content), local).manifest.files
    chunk = entry.chunks[0]
    os.truncate(local.path(chunk.key), chunk.size - 1)
    assert upload(scan(content), local).chunks_sent == 1
    assert local.read(chunk.key) == b"aaaa"


def test_equal_files_are_sent_once(tmp_path: Path, store: StoreBehind) -> None:
    write_dataset(tmp_path / "content", {f"{n}.txt": b"same" for n in range(20)})
    assert _push(tmp_path / "content", store).chunks_sent == 1
    assert len(store.put_keys) == 1


def test_of_a_merged_model_only_the_changed_tensors_and_the_header_are_sent(
    tmp_path: Path, store: StoreBehind
) -> None:
    def tensors(seed: int) -> dict[str, tuple[str, tuple[int, ...], int]]:
        return {
            f"layers.{layer}.{name}": ("BF16", shape, seed if name == "q" else layer)
            for layer in range(4)
            for name, shape in {"norm": (100,), "q": (256, 256), "up": (256, 1024)}.items()
        }

    _push(write_model(tmp_path / "base", tensors(0)), store)
    merged = _push(write_model(tmp_path / "merged", {**tensors(0), **tensors(1)}), store)
    changed = 256 * 256 * 2  # the four new q are equal to each other
    assert changed >= SMALL
    header = merged.manifest.get("model.safetensors").chunks[0].size  # type: ignore[union-attr]
    assert changed <= merged.bytes_sent <= changed + header


def test_what_only_claims_to_be_safetensors_is_sent_like_any_file(tmp_path: Path, store: StoreBehind) -> None:
    write_dataset(tmp_path / "content", {"x.safetensors": b"not really"})
    assert _push(tmp_path / "content", store).bytes_sent == 10


class _Index:
    def __init__(self, known: Collection[str]) -> None:
        self.known = set(known)

    def present(self, chunks: Collection[ChunkRef]) -> set[str]:
        return {chunk.key for chunk in chunks} & self.known


def test_what_the_index_knows_is_not_even_looked_for_in_the_store(content: Path, store: StoreBehind) -> None:
    key = hashlib.sha256(b"aaaa").hexdigest()
    sent = upload(scan(content), store, index=_Index({key}))
    assert (sent.bytes_sent, sent.chunks_sent) == (2, 1)
    assert store.missing([key]) == {key}


class _Progress:
    def __init__(self) -> None:
        self.total, self.done = -1, 0
        self._lock = threading.Lock()

    def start(self, total: int) -> None:
        self.total = total

    def advance(self, count: int) -> None:
        with self._lock:
            self.done += count


def test_progress_reaches_the_total_whether_or_not_anything_was_sent(
    content: Path, store: StoreBehind
) -> None:
    for _ in range(2):
        progress = _Progress()
        upload(scan(content), store, progress=progress)
        assert progress.total == progress.done == 6


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _write_same_size(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def _replace(path: Path) -> None:
    status = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


def _make_link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


@pytest.mark.parametrize(
    "change",
    [_append, _write_same_size, _replace, _make_link, Path.unlink, lambda path: os.truncate(path, 1)],
    ids=["grows", "is written", "is replaced", "becomes a link", "vanishes", "shrinks"],
)
@pytest.mark.parametrize("when", ["before it is read", "after it is read"])
def test_a_file_that_changes_while_it_is_pushed_is_refused(
    content: Path, store: StoreBehind, change: Callable[[Path], None], when: str
) -> None:
    found = scan(content)
    changed: list[str] = []

    def on(point: str) -> None:
        if not changed:
            changed.append(point)
            change(content / "a.txt")

    with pytest.raises(InvalidContent, match=r"a\.txt changed while it was pushed"):
        if when == "before it is read":
            on("")
            upload(found, store)
        else:
            with crashpoints.observed_by(on):
                upload(found, store)
    assert changed


class _Full(StoreBehind):
    def __init__(self, behind: LocalStore, after: int) -> None:
        super().__init__(behind)
        self.after = after

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        if len(self.put_keys) >= self.after:
            raise StoreFull("the store has no room left")
        super().put(key, data, digested=digested)


def test_a_store_without_room_ends_the_push_and_what_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    write_dataset(tmp_path / "content", {f"{n}.txt": some_bytes(100, n) for n in range(200)})
    store = _Full(LocalStore(tmp_path / "store"), after=50)
    with pytest.raises(StoreFull, match="no room left"):
        _push(tmp_path / "content", store)
    there = len(list(store.list()))
    assert there >= 50
    store.after = 1000
    assert _push(tmp_path / "content", store).chunks_sent == 200 - there


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_push_killed_after_any_chunk_is_taken_up_where_it_was(tmp_path: Path, nth: int) -> None:
    class Killed(BaseException):
        pass

    folder = write_adapter(tmp_path / "content")
    store = StoreBehind(LocalStore(tmp_path / "store"))
    reached: list[str] = []

    def on(point: str) -> None:
        reached.append(point)
        if len(reached) >= nth:
            raise Killed

    with crashpoints.observed_by(on), pytest.raises(Killed):
        _push(folder, store)
    assert reached[:1] == ["upload.chunk_stored"]
    there = len(list(store.list()))
    again = _push(folder, store)
    assert again.chunks_sent == len(again.manifest.chunks()) - there
    assert again.manifest == stored(folder, LocalStore(tmp_path / "another"))
