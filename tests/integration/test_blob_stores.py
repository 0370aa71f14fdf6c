"""The S3 store keeps the rules of the port, and translates what a server and a network can do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.content.blobs import open_store as open_url
from registry.content.cache import ChunkCache
from registry.content.download import materialise
from registry.content.scan import scan
from registry.content.upload import upload
from registry.errors import ContentDamaged, StoreUnavailable
from tests.common.blob_store_suite import BlobStoreSuite, OpenStore, key_of
from tests.common.content import read_folder, some_bytes, write_dataset
from tests.common.cutting_proxy import CuttingProxy
from tests.common.services import Bucket, S3Server


class TestS3Store(BlobStoreSuite):
    @pytest.fixture
    def open_store(self, s3: Bucket) -> Iterator[OpenStore]:
        opened = []

        def open_it() -> object:
            opened.append(open_url(f"{s3.url}/some/prefix"))
            return opened[-1]

        yield open_it  # type: ignore[misc]
        for store in opened:
            store.close()


def test_two_prefixes_of_one_bucket_are_two_stores(s3: Bucket) -> None:
    one, other = open_url(f"{s3.url}/one"), open_url(f"{s3.url}/two")
    one.put(key_of(b"data"), b"data")
    assert other.missing([key_of(b"data")]) == {key_of(b"data")}
    one.claim("database-1")
    other.claim("database-2")


def test_a_bucket_without_prefix_is_a_store(s3: Bucket) -> None:
    store = open_url(s3.url)
    store.put(key_of(b"data"), b"data")
    assert [info.key for info in store.list()] == [key_of(b"data")]
    assert store.url == s3.url


def test_the_server_refuses_bytes_that_changed_on_their_way(s3: Bucket) -> None:
    store = open_url(s3.url)
    with pytest.raises(ContentDamaged, match="changed on their way"):
        store.put(key_of(b"right"), b"wrong", digested=True)
    assert list(store.list()) == []


def test_a_folder_goes_to_s3_and_comes_back_and_the_second_time_from_the_cache(
    s3: Bucket, tmp_path: Path
) -> None:
    files = {"a.bin": some_bytes(5_000_000), "deep/b.txt": b"text", "empty": b""}
    write_dataset(tmp_path / "content", files)
    store = open_url(s3.url)
    sent = upload(scan(tmp_path / "content"), store)
    assert sent.bytes_sent == 5_000_004
    assert upload(scan(tmp_path / "content"), store).bytes_sent == 0
    cache = ChunkCache(tmp_path / "cache", 1 << 30)
    materialise(sent.manifest, tmp_path / "one", store, cache=cache)
    for info in list(store.list()):
        store.delete(info.key)
    materialise(sent.manifest, tmp_path / "two", store, cache=cache)
    assert read_folder(tmp_path / "one") == read_folder(tmp_path / "two") == files


def test_wrong_credentials_are_said_to_be_wrong(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(StoreUnavailable, match="refuses the credentials") as raised:
        open_url(s3.url).put(key_of(b"data"), b"data")
    assert "AWS_SECRET_ACCESS_KEY" in raised.value.remedy
    assert "another-secret" not in str(raised.value.to_dict())
    for ask in ("missing", "read", "claim"):
        with pytest.raises(StoreUnavailable, match="refuses the credentials"):
            getattr(open_url(s3.url), ask)([key_of(b"x")] if ask == "missing" else key_of(b"x"))


def test_no_credentials_are_said_to_be_lacking(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreUnavailable, match="refuses the credentials") as raised:
        open_url(s3.url).read(key_of(b"data"))
    assert "AWS_ACCESS_KEY_ID" in raised.value.remedy


def test_a_bucket_that_is_not_there_is_named(s3: Bucket) -> None:
    store = open_url("s3://no-such-bucket/prefix")
    for ask in (
        lambda: store.put(key_of(b"x"), b"x"),
        lambda: store.read(key_of(b"x")),
        lambda: store.claim("database-1"),
        lambda: list(store.list()),
    ):
        with pytest.raises(StoreUnavailable, match="s3://no-such-bucket/prefix has no such bucket"):
            ask()


def test_a_server_that_is_not_there_is_unreachable(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
            open_url(s3.url).read(key_of(b"data"))
    assert "AWS_ENDPOINT_URL" in raised.value.remedy


def test_a_connection_that_drops_half_way_is_tried_again(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_bytes(3_000_000)
    open_url(s3.url).put(key_of(data), data)
    with CuttingProxy(s3.endpoint, after=1_000_000, times=2) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        store = open_url(s3.url)
        buffer = bytearray(len(data))
        store.read_into(key_of(data), memoryview(buffer))
        store.close()
    assert proxy.left == 0
    assert buffer == data


def test_a_connection_that_always_drops_is_an_unreachable_store(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = some_bytes(3_000_000)
    open_url(s3.url).put(key_of(data), data)
    with CuttingProxy(s3.endpoint, after=1_000_000, times=100) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        store = open_url(s3.url)
        with pytest.raises(StoreUnavailable, match=r"The connection to the store .* broke"):
            store.read_into(key_of(data), memoryview(bytearray(len(data))))
        store.close()


def test_a_pull_that_breaks_off_leaves_nothing_and_a_push_goes_on_where_it_was(
    s3_server: S3Server, s3: Bucket, tmp_path: Path
) -> None:
    write_dataset(tmp_path / "content", {f"{n}.bin": some_bytes(10_000, n) for n in range(10)})
    store = open_url(s3.url)
    sent = upload(scan(tmp_path / "content"), store)
    lost = sent.manifest.files[3].chunks[0]
    store.delete(lost.key)
    with pytest.raises(ContentDamaged, match=f"3.bin: Chunk {lost.key} is not in the store"):
        materialise(sent.manifest, tmp_path / "out", store)
    assert [path.name for path in tmp_path.iterdir()] == ["content"]
    again = upload(scan(tmp_path / "content"), store)
    assert (again.chunks_sent, again.manifest) == (1, sent.manifest)
