"""The blob store of a world: chunks in memory, a store that can fail and lose."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from registry.content.blobs.store import (
    BlobInfo,
    Buffer,
    Mark,
    check_digest,
    check_owner,
    missing_chunk,
    wrong_size,
)
from registry.errors import StoreUnavailable
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World


class SharedStore:
    """One process's way to the world's chunks. It says that it is local, so that no cache hides a loss."""

    is_local = True
    url = "memory:"

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world: World = process.world
        self._chunks: dict[str, bytes] = process.world.chunks

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        self._process.between_transactions()
        self._maybe_fail()
        check_digest(key, data)
        self._chunks[key] = bytes(data)
        self._world.puts.append((self._process.name, key))
        self._maybe_fail()

    def put_soon(self, key: str, data: Buffer, *, digested: bool = False) -> Future[None]:
        return _Soon(self, key, bytes(data))

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._process.check()
        if key not in self._chunks:
            raise missing_chunk(self.url, key)
        return self._chunks[key][start:][:length]

    def read_into(self, key: str, buffer: memoryview) -> None:
        data = self.read(key)
        if len(data) != buffer.nbytes:
            raise wrong_size(self.url, key, buffer.nbytes)
        buffer[:] = data

    def missing(self, keys: Collection[str], sizes: Mapping[str, int] | None = None) -> set[str]:
        self._process.check()
        return {key for key in keys if key not in self._chunks}

    def delete(self, key: str) -> None:
        self._process.check()
        self._chunks.pop(key, None)

    def list(self) -> Iterator[BlobInfo]:
        return iter([BlobInfo(key, len(data), 0.0) for key, data in self._chunks.items()])

    def claim(self, database_id: str) -> str:
        return check_owner(self.url, self.mark(), database_id)

    def mark(self) -> Mark:
        return Mark(self._world.database_id, "simulated")

    def close(self) -> None:
        """Nothing is held."""

    def _maybe_fail(self) -> None:
        if self._world.happens(self._world.faults.store_away):
            raise StoreUnavailable("The store did not answer: simulated.")


class _Soon(Future[None]):
    """A put that happens as late as it may: when somebody waits for it."""

    def __init__(self, store: SharedStore, key: str, data: bytes) -> None:
        super().__init__()
        self._put = (store, key, data)

    def result(self, timeout: float | None = None) -> None:
        store, key, data = self._put
        if not self.done():
            try:
                store.put(key, data, digested=True)
            except BaseException as error:
                self.set_exception(error)
            else:
                self.set_result(None)
        super().result(timeout)
