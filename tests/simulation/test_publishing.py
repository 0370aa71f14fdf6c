"""Uploading and publishing: no version with a hole, no content twice, nothing sent again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from registry.content.upload import Uploaded
from registry.database.engine import Transaction
from registry.database.statements import Statement
from registry.errors import NotFound
from registry.store import files, publishing
from registry.store.catalog import StoredCatalog
from registry.values import Published
from tests.simulation.blobs import SharedStore
from tests.simulation.mutants import caught
from tests.simulation.publishing import play
from tests.simulation.schedules import seeds
from tests.simulation.world import ROUGH, Kill, World

POINTS = ("upload.chunk_stored", "publish.recorded")


def test_in_fair_weather_each_content_is_one_version(tmp_path: Path) -> None:
    world = play(tmp_path)
    assert set(POINTS) <= set(world.counts)
    assert len(world.puts) == 8


@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_any_point_leaves_no_hole_and_only_what_is_missing_to_send(
    tmp_path: Path, point: str
) -> None:
    for count in range(1, play(tmp_path).counts[point] + 1):
        play(tmp_path, kill=Kill(point, count))


def test_random_faults_leave_no_hole(tmp_path: Path) -> None:
    for seed in seeds(100):
        play(tmp_path, seed, faults=ROUGH)


def test_two_publishers_of_the_same_contents_make_each_a_version_once(tmp_path: Path) -> None:
    for seed in seeds(60):
        play(tmp_path, seed, faults=ROUGH, publishers=2)


# The oracle notices when they are broken.


def _publish_before_the_chunks(patch: pytest.MonkeyPatch) -> None:
    upload = files.upload
    publish = StoredCatalog.publish
    waiting: list[Callable[[], object]] = []

    class Nowhere(SharedStore):
        def put(self, key: str, data: object, *, digested: bool = False) -> None:
            """Keep nothing."""

    def first_the_manifest(scan: object, store: SharedStore, **options: object) -> Uploaded:
        waiting.append(lambda: upload(scan, store, **options))  # type: ignore[arg-type]
        return upload(scan, Nowhere(store._process), **options)  # type: ignore[arg-type]

    def then_the_chunks(self: StoredCatalog, *arguments: object, **options: object) -> object:
        published = publish(self, *arguments, **options)  # type: ignore[arg-type]
        waiting.pop()()
        return published

    patch.setattr(files, "upload", first_the_manifest)
    patch.setattr(StoredCatalog, "publish", then_the_chunks)


def _believe_that_chunks_are_there(patch: pytest.MonkeyPatch) -> None:
    """What an upload meant to send counts as sent."""
    meant: set[tuple[int, str]] = set()

    def missing(self: SharedStore, keys: object, sizes: object = None) -> set[str]:
        new = {key for key in keys if (id(self._world), key) not in meant}  # type: ignore[attr-defined]
        meant.update((id(self._world), key) for key in new)
        return new & {key for key in new if key not in self._chunks}

    patch.setattr(SharedStore, "missing", missing)


def _deduplicate_by_a_look_before_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """An existence check alone: two publishers both find nothing, and both write."""
    execute = Transaction.first

    def blind(self: Transaction, statement: Statement, **parameters: object) -> object:
        return None if statement is publishing._SAME_CONTENT else execute(self, statement, **parameters)

    publish = StoredCatalog.publish

    def looked_before(self: StoredCatalog, name: str, path: Path, kind: str | None = None) -> object:
        with self._session.database.transaction() as transaction:
            transaction._cursor.execute("DROP INDEX IF EXISTS version_content")
        digest = self.store(path, kind or "dataset").digest
        try:
            version = self.resolve(f"{name}@{digest}")
        except NotFound:
            return publish(self, name, path, kind)
        return Published(version, False)

    patch.setattr(Transaction, "first", blind)
    patch.setattr(StoredCatalog, "publish", looked_before)


@pytest.mark.parametrize(
    "mutate",
    [
        _publish_before_the_chunks,
        _believe_that_chunks_are_there,
        _deduplicate_by_a_look_before_the_transaction,
    ],
)
def test_a_mutant_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)

    def rough(seed: int) -> World:
        return play(tmp_path, seed, faults=ROUGH, publishers=2)

    caught(rough, range(400))
