"""Artifacts as the paths that tasks take and return."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from registry import Registry
from registry.artifacts import Adapter, File, Model, StoredContent
from registry.errors import InvalidContent, InvalidInput


def stored(folder: Path, asked: list[str]) -> Model:
    def fetch() -> Path:
        asked.append("fetched")
        return folder

    return Model.stored(StoredContent("value", "model", "sha256:" + "0" * 64, "smollm2:v1"), fetch)


def test_a_result_is_a_path_without_a_digest() -> None:
    adapter = Adapter("somewhere/adapter")
    assert Path(adapter) == Path("somewhere/adapter")
    assert (adapter.kind, adapter.digest, adapter.ref, adapter.value) == ("adapter", None, None, None)


def test_stored_content_is_fetched_once_and_only_when_it_is_touched(tmp_path: Path) -> None:
    asked: list[str] = []
    model = stored(tmp_path, asked)
    assert (model.ref, model.value, asked) == ("smollm2:v1", "value", [])
    assert (Path(model), str(model), model / "config.json") == (
        tmp_path,
        str(tmp_path),
        tmp_path / "config.json",
    )
    assert asked == ["fetched"]


def test_a_library_may_copy_what_holds_an_artifact(tmp_path: Path) -> None:
    asked: list[str] = []
    configuration = {"path": stored(tmp_path, asked)}
    assert copy.deepcopy(configuration)["path"].ref == "smollm2:v1"
    assert asked == []


def test_a_file_is_a_path_to_the_file_itself(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("1,2\n")
    stored = registry.catalog.store(File(tmp_path / "numbers.csv").path, "file")
    content = StoredContent("value", "file", stored.digest)

    def fetch() -> Path:
        registry.catalog.materialise(stored.digest, tmp_path / "there")
        return tmp_path / "there"

    assert Path(File.stored(content, fetch)).read_text() == "1,2\n"


def test_a_folder_is_no_file(registry: Registry, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    with pytest.raises(InvalidContent, match="2 files"):
        registry.catalog.store(folder, "file")
    assert registry.catalog.store(folder, "dir").kind == "dir"


def test_what_is_not_stored_yet_cannot_be_named() -> None:
    with pytest.raises(InvalidInput, match="not stored"):
        Adapter("somewhere").publish("router")
