from __future__ import annotations

from pathlib import Path

import pytest

from registry.content.blobs.local import LocalStore
from registry.content.chunking import SMALL
from registry.content.diff import Change, ContentDiff
from registry.content.reading import ChunkSource, compare
from tests.common.content import Spec, StoreBehind, stored, write_dataset, write_model

_BASE: dict[str, Spec] = {
    "embed": ("BF16", (256, 256), 1),
    "layers.0.norm": ("BF16", (64,), 2),
    "layers.0.norm2": ("BF16", (64,), 3),
    "layers.0.q": ("BF16", (256, 256), 4),
}


@pytest.fixture
def store(tmp_path: Path) -> StoreBehind:
    return StoreBehind(LocalStore(tmp_path / "store"))


def _diff(tmp_path: Path, store: StoreBehind, new: dict[str, Spec]) -> ContentDiff:
    old_manifest = stored(write_model(tmp_path / "old", _BASE), store)
    new_manifest = stored(write_model(tmp_path / "new", new), store)
    store.read_keys.clear()
    return compare(old_manifest, new_manifest, ChunkSource(store))


def _tensors(found: ContentDiff) -> dict[str, Change]:
    return {tensor.name: tensor.change for tensor in found.tensors}


def test_equal_content_has_no_difference(tmp_path: Path, store: StoreBehind) -> None:
    found = _diff(tmp_path, store, _BASE)
    assert found.is_empty
    assert (found.tensors, found.tensors_same, found.bytes_new) == ((), 4, 0)
    assert found.bytes_shared > 2 * 256 * 256 * 2


def test_a_changed_tensor_is_named_and_its_bytes_are_counted(tmp_path: Path, store: StoreBehind) -> None:
    found = _diff(tmp_path, store, {**_BASE, "layers.0.q": ("BF16", (256, 256), 9)})
    assert _tensors(found) == {"layers.0.q": Change.CHANGED}
    assert [(file.path, file.change) for file in found.files] == [("model.safetensors", Change.CHANGED)]
    assert found.bytes_new == 256 * 256 * 2  # the header did not change


def test_of_packed_neighbours_only_the_changed_one_is_named(tmp_path: Path, store: StoreBehind) -> None:
    found = _diff(tmp_path, store, {**_BASE, "layers.0.norm2": ("BF16", (64,), 9)})
    assert _tensors(found) == {"layers.0.norm2": Change.CHANGED}
    assert found.tensors_same == 3


def test_added_removed_and_reshaped_tensors_are_told_apart(tmp_path: Path, store: StoreBehind) -> None:
    new = {name: spec for name, spec in _BASE.items() if name != "layers.0.norm"}
    new["layers.0.q"] = ("BF16", (128, 512), 4)
    new["embed"] = ("F32", (256, 128), 1)
    new["lm_head"] = ("BF16", (256, 256), 7)
    assert _tensors(_diff(tmp_path, store, new)) == {
        "layers.0.norm": Change.REMOVED,
        "layers.0.q": Change.RESHAPED,
        "embed": Change.RESHAPED,
        "lm_head": Change.ADDED,
    }


def test_tensors_that_only_moved_to_another_place_or_file_are_the_same(
    tmp_path: Path, store: StoreBehind
) -> None:
    found = _diff(tmp_path, store, dict(reversed(_BASE.items())))
    assert (found.tensors, found.tensors_same) == ((), 4)
    assert not found.is_empty


def test_large_tensors_are_compared_without_reading_them(tmp_path: Path, store: StoreBehind) -> None:
    _diff(tmp_path, store, {**_BASE, "layers.0.q": ("BF16", (256, 256), 9)})
    read = {key: len(store.behind.read(key)) for key in store.read_keys}
    assert max(read.values()) < SMALL


def test_files_that_came_went_or_changed_are_named(tmp_path: Path, store: StoreBehind) -> None:
    one = write_dataset(tmp_path / "one", {"gone": b"1", "same": b"2", "other": b"3"})
    two = write_dataset(tmp_path / "two", {"came": b"1", "same": b"2", "other": b"33"})
    found = compare(stored(one, store), stored(two, store), ChunkSource(store))
    assert [(file.path, file.change, file.old_size, file.new_size) for file in found.files] == [
        ("came", Change.ADDED, None, 1),
        ("gone", Change.REMOVED, 1, None),
        ("other", Change.CHANGED, 1, 2),
    ]
    assert (found.bytes_shared, found.bytes_new) == (2, 2)
