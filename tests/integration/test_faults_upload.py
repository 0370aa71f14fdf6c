"""Pushes killed at each point by SIGKILL, and chunks that go bad in the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.errors import ContentDamaged
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from tests.common.content import read_folder, some_bytes, write_dataset
from tests.common.faults import Actor, Place, publish_once
from tests.common.services import Bucket

pytestmark = pytest.mark.integration

_FILES = {f"{name}.bin": some_bytes(50_000, seed) for seed, name in enumerate("abcd")}
_SIZE = 50_000
_POINTS = [("upload.chunk_stored", n) for n in (1, 2, 3, 4)] + [("publish.recorded", 1)]


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    told = tmp_path / "told"
    told.mkdir()
    write_dataset(tmp_path / "content", _FILES)
    if request.param == "folder":
        return Place(Settings(home=tmp_path / "home"), {}, told)
    bucket: Bucket = request.getfixturevalue("s3")
    return Place(Settings(home=tmp_path / "home", blobs=bucket.url), bucket.environment, told)


@pytest.fixture
def registry(place: Place) -> Iterator[StoredRegistry]:
    opened = place.open()
    yield opened
    opened.close()


def _push(place: Place, point: str = "", count: int = 1) -> int:
    actor = Actor("publisher", publish_once, place)
    actor.start_to_die(point, count)
    return actor.wait()


def _chunks(registry: StoredRegistry) -> set[str]:
    return {blob.key for blob in registry._files._store.list()}


@pytest.mark.parametrize(("point", "count"), _POINTS)
def test_a_push_killed_at_any_point_leaves_no_version_and_is_resumed_with_what_is_missing(
    place: Place, registry: StoredRegistry, tmp_path: Path, point: str, count: int
) -> None:
    assert _push(place, point, count) == -signal.SIGKILL
    assert registry.catalog.artifacts() == []
    there = len(_chunks(registry))
    assert there >= count if point == "upload.chunk_stored" else there == len(_FILES)
    assert _push(place) == 0
    (told,) = place.acknowledgements()
    assert told == {"ref": "dog:v1", "sent": (len(_FILES) - there) * _SIZE, "total": len(_FILES) * _SIZE}
    registry.catalog.pull("dog:v1", tmp_path / "pulled")
    assert read_folder(tmp_path / "pulled") == _FILES


def test_a_chunk_that_is_lost_or_damaged_in_the_store_is_found_when_it_is_pulled(
    place: Place, registry: StoredRegistry, tmp_path: Path
) -> None:
    assert _push(place) == 0
    version = registry.catalog.resolve("dog:v1")
    store = registry._files._store
    key = next(iter(registry.catalog.manifest(version.digest).chunks()))
    kept = store.read(key)
    store.delete(key)
    with pytest.raises(ContentDamaged, match=key):
        registry.catalog.pull("dog:v1", tmp_path / "lost")
    _spoil(place, store, key, kept)
    with pytest.raises(ContentDamaged, match=r"\.bin"):
        registry.catalog.pull("dog:v1", tmp_path / "damaged")
    assert not (tmp_path / "lost").exists() and not (tmp_path / "damaged").exists()
    store.delete(key)
    store.put(key, kept)
    registry.catalog.pull("dog:v1", tmp_path / "whole")
    assert read_folder(tmp_path / "whole") == _FILES


def _spoil(place: Place, store: object, key: str, data: bytes) -> None:
    """Put other bytes where a chunk was, as a broken disk would."""
    damaged = bytes([data[0] ^ 1]) + data[1:]
    if place.settings.blobs is None:
        store.path(key).write_bytes(damaged)  # type: ignore[attr-defined]
    else:
        name = place.settings.blobs.removeprefix("s3://")
        where = store._name(key)  # type: ignore[attr-defined]
        store._client.put_object(Bucket=name, Key=where, Body=damaged)  # type: ignore[attr-defined]


def test_the_command_killed_while_it_pushes_is_taken_up_by_the_next(tmp_path: Path) -> None:
    write_dataset(tmp_path / "content", _FILES)
    podium = Path(sys.executable).with_name("podium")
    push = [podium, "push", "dog", tmp_path / "content", "--kind", "dataset", "--json"]
    environment = os.environ | {"PODIUM_HOME": str(tmp_path / "home")}
    killed = subprocess.run(
        push,
        env=environment | {"PODIUM_CRASH_AT": "upload.chunk_stored:2"},
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL
    done = subprocess.run(
        [*push, "--kind", "dataset", "--json"], env=environment, capture_output=True, check=True
    )
    said = json.loads(done.stdout)
    assert said["ref"] == "dog:v1"
    assert 0 < said["bytes_sent"] <= 2 * _SIZE < said["bytes_total"]
