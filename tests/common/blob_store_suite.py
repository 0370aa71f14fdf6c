"""What every `BlobStore` must do. Subclasses say which one, by a fixture `open_again`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.content.blobs import BlobStore
from registry.content.blobs.store import Mark
from registry.errors import ContentDamaged, InvalidSetting
from tests.common.content import some_bytes

OpenStore = Callable[[], BlobStore]


def key_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class BlobStoreSuite:
    """The rules of the port. ``open_store`` opens the same, at first empty, store each time."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_store: OpenStore) -> BlobStore:
        return open_store()

    @pytest.mark.parametrize("size", [1, 1000, 3 << 20])
    def test_what_is_put_is_read_back(self, store: BlobStore, size: int) -> None:
        data = some_bytes(size)
        store.put(key_of(data), data)
        buffer = bytearray(size)
        store.read_into(key_of(data), memoryview(buffer))
        assert buffer == data
        assert store.read(key_of(data)) == data

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_can_be_put(self, store: BlobStore, kind: type) -> None:
        store.put(key_of(b"some data"), kind(b"some data"), digested=True)
        assert store.read(key_of(b"some data")) == b"some data"

    def test_a_range_is_read_and_ends_where_the_chunk_ends(self, store: BlobStore) -> None:
        store.put(key_of(b"0123456789"), b"0123456789")
        assert store.read(key_of(b"0123456789"), 2, 3) == b"234"
        assert store.read(key_of(b"0123456789"), 8) == b"89"
        assert store.read(key_of(b"0123456789"), 8, 100) == b"89"
        assert store.read(key_of(b"0123456789"), 3, 0) == b""

    def test_another_opening_sees_what_is_stored(self, store: BlobStore, open_store: OpenStore) -> None:
        store.put(key_of(b"data"), b"data")
        assert open_store().read(key_of(b"data")) == b"data"

    def test_putting_again_changes_nothing(self, store: BlobStore) -> None:
        store.put(key_of(b"data"), b"data")
        store.put(key_of(b"data"), b"data")
        assert [(info.key, info.size) for info in store.list()] == [(key_of(b"data"), 4)]

    def test_many_may_put_the_same_at_once(self, store: BlobStore) -> None:
        data = some_bytes(100_000)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: store.put(key_of(data), data), range(16)))
        assert store.read(key_of(data)) == data

    def test_bytes_that_do_not_have_the_digest_are_not_stored(self, store: BlobStore) -> None:
        with pytest.raises(ContentDamaged):
            store.put(key_of(b"right"), b"wrong")
        assert store.missing([key_of(b"right")]) == {key_of(b"right")}

    def test_a_chunk_that_is_not_there_is_damaged_content(self, store: BlobStore) -> None:
        key = key_of(b"never put")
        with pytest.raises(ContentDamaged, match=f"Chunk {key} is not in the store"):
            store.read(key)
        with pytest.raises(ContentDamaged) as raised:
            store.read_into(key, memoryview(bytearray(9)))
        assert raised.value.details["chunk"] == key

    @pytest.mark.parametrize("size", [3, 5])
    def test_a_chunk_of_another_size_is_damaged_content(self, store: BlobStore, size: int) -> None:
        store.put(key_of(b"four"), b"four")
        with pytest.raises(ContentDamaged, match=f"does not have its {size} bytes"):
            store.read_into(key_of(b"four"), memoryview(bytearray(size)))

    def test_missing_names_those_that_are_not_there(self, store: BlobStore) -> None:
        there = [some_bytes(10, seed) for seed in range(20)]
        for data in there:
            store.put(key_of(data), data)
        absent = {key_of(some_bytes(11, seed)) for seed in range(20)}
        assert store.missing([*map(key_of, there), *absent]) == absent
        assert store.missing([key_of(there[0])]) == set()
        assert store.missing([]) == set()

    def test_a_deleted_chunk_is_gone_and_may_be_deleted_again_and_put_again(self, store: BlobStore) -> None:
        store.put(key_of(b"data"), b"data")
        store.delete(key_of(b"data"))
        store.delete(key_of(b"data"))
        assert store.missing([key_of(b"data")]) == {key_of(b"data")}
        store.put(key_of(b"data"), b"data")
        assert store.read(key_of(b"data")) == b"data"

    def test_a_chunk_of_another_size_than_it_should_have_counts_as_missing(self, store: BlobStore) -> None:
        key = key_of(b"data")
        store.put(key, b"data")
        assert store.missing([key], {key: 4}) == set()
        assert store.missing([key], {key: 5}) == {key}

    def test_the_list_has_keys_sizes_and_times_and_nothing_else(self, store: BlobStore) -> None:
        store.claim("database-1")
        store.put(key_of(b"one"), b"one")
        store.put(key_of(b"three"), b"three")
        found = {info.key: info for info in store.list()}
        assert {key: info.size for key, info in found.items()} == {key_of(b"one"): 3, key_of(b"three"): 5}
        assert abs(found[key_of(b"one")].modified - found[key_of(b"three")].modified) < 60

    def test_a_store_belongs_to_the_first_database_that_claims_it(
        self, store: BlobStore, open_store: OpenStore
    ) -> None:
        assert store.mark() is None
        first = store.claim("database-1")
        assert store.claim("database-1") == first
        assert store.mark() == Mark("database-1", first)
        other = open_store()
        with pytest.raises(InvalidSetting, match="belongs to the database database-1"):
            other.claim("database-2")
        assert other.claim("database-1") == first

    def test_of_many_claims_at_once_one_database_wins(self, open_store: OpenStore) -> None:
        def claim(name: str) -> str | None:
            try:
                open_store().claim(name)
            except InvalidSetting:
                return None
            return name

        with ThreadPoolExecutor(8) as pool:
            winners = set(pool.map(claim, [f"database-{n}" for n in range(8)])) - {None}
        assert len(winners) == 1
