"""Artifacts as the paths that tasks take and return."""

from __future__ import annotations

import copy
from pathlib import Path

from registry.artifacts import Adapter, Model, StoredContent


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
