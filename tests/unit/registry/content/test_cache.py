from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.content.cache import Cached, ChunkCache, to_remove
from tests.common.blob_store_suite import key_of
from tests.common.content import some_bytes


def _add(cache: ChunkCache, seed: int, size: int = 100) -> str:
    data = some_bytes(size, seed)
    cache.add(key_of(data), data)
    return key_of(data)


def _has(cache: ChunkCache, key: str, size: int = 100) -> bool:
    return cache.read_into(key, memoryview(bytearray(size)))


def _age(root: Path, key: str, seconds: float) -> None:
    path = root / "chunks" / key[:2] / key
    used = path.stat().st_mtime - seconds
    os.utime(path, (used, used))


def test_what_is_added_is_there(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 1000)
    key = _add(cache, 1)
    buffer = bytearray(100)
    assert cache.read_into(key, memoryview(buffer))
    assert buffer == some_bytes(100, 1)
    assert cache.read(key, 10, 5) == some_bytes(100, 1)[10:15]


def test_what_was_never_added_or_dropped_or_has_another_size_is_not_there(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 1000)
    assert not _has(cache, key_of(b"never"))
    assert cache.read(key_of(b"never"), 0, 1) is None
    key = _add(cache, 1)
    assert not _has(cache, key, size=99)
    cache.drop(key)
    cache.drop(key)
    assert not _has(cache, key)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 1000)
    keys = [_add(cache, n) for n in range(10)]
    for n, key in enumerate(keys):
        _age(tmp_path, key, 1000 - n)
    assert _has(cache, keys[0])  # which uses it
    _add(cache, 99)
    assert [_has(cache, key) for key in keys] == [True, False, False] + [True] * 7


def test_a_cache_that_another_process_cleans_goes_on_without_cleaning(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 1000)
    keys = [_add(cache, n) for n in range(10)]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys.append(_add(cache, 99))
    assert all(_has(cache, key) for key in keys)


def test_a_chunk_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 50)
    assert not _has(cache, _add(cache, 1))


def test_a_cache_that_cannot_be_written_is_a_warning_and_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("x")
    cache = ChunkCache(tmp_path / "file" / "cache", 1000)
    assert not _has(cache, _add(cache, 1))
    assert "cannot be written" in caplog.text


_ADD_MANY = """
import sys
from pathlib import Path
from registry.content.cache import ChunkCache
from tests.common.blob_store_suite import key_of
from tests.common.content import some_bytes
cache = ChunkCache(Path(sys.argv[1]), 20_000)
for n in range(300):
    data = some_bytes(1000, n % 50)
    cache.add(key_of(data), data)
    buffer = bytearray(1000)
    if cache.read_into(key_of(data), memoryview(buffer)):
        assert buffer == data
"""


def test_several_processes_share_one_cache_and_keep_its_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ADD_MANY, str(tmp_path)]
    processes = [subprocess.Popen(command, cwd=Path(__file__).parents[4]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    _add(ChunkCache(tmp_path, 20_000), 1000)  # a new process looks at once
    assert sum(path.stat().st_size for path in (tmp_path / "chunks").rglob("*") if path.is_file()) <= 20_000


_CACHED = st.builds(
    Cached,
    st.integers(0, 10**6).map(lambda n: Path("chunks/ab", str(n))),
    st.integers(1, 1000),
    st.floats(0, 1000),
)


@given(st.lists(_CACHED, max_size=30), st.integers(0, 5000))
def test_removal_keeps_the_limit_and_takes_only_the_oldest(cached: list[Cached], limit: int) -> None:
    removed = list(to_remove(cached, limit, now=1000))
    kept = list(cached)
    for each in removed:
        kept.remove(each)
    assert sum(each.size for each in kept) <= limit
    assert max((each.used for each in removed), default=0) <= min((each.used for each in kept), default=1000)
    if sum(each.size for each in cached) <= limit:
        assert removed == []


def test_leftovers_of_a_crash_go_after_an_hour() -> None:
    old, new = Cached(Path("aside/old"), 1, 0), Cached(Path("aside/new"), 1, 9000)
    assert list(to_remove([old, new], 100, now=10_000)) == [old]
