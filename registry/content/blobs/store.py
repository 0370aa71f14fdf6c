"""The protocol of a blob store, and what all stores share."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from registry.errors import ContentDamaged, InvalidSetting

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """A stored chunk."""

    key: str
    size: int
    modified: float  # seconds since the epoch, by the store's clock


class BlobStore(Protocol):
    """Immutable chunks under their sha256. All calls are thread-safe.

    Raises, from every method: `StoreUnavailable` (not reachable, wrong credentials, wrong bucket),
    `StoreFull` (no room left).
    """

    @property
    def url(self) -> str:
        """How it was opened; without secrets."""

    @property
    def is_local(self) -> bool:
        """Whether reading is as cheap as reading a cache on this machine would be."""

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        """Store ``data``, whose sha256 is ``key``, durably; nothing happens if it is there.

        ``digested`` says that the caller has just computed the digest of these very bytes, so that a store
        that would only compute it again need not.

        Raises:
            ContentDamaged: the bytes do not have that digest, here or on arrival. Nothing is stored.
        """

    def put_soon(self, key: str, data: Buffer, *, digested: bool = False) -> Future[None]:
        """Begin to `put`. ``data`` may be used for something else as soon as this returns.

        The chunk is stored when the future is done; its exception is what `put` would have raised.
        """

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of a chunk; fewer than ``length`` where it ends. Not verified: the caller knows the digest.

        Raises:
            ContentDamaged: there is no such chunk.
        """

    def read_into(self, key: str, buffer: memoryview) -> None:
        """Fill ``buffer`` with the whole chunk. Not verified.

        Raises:
            ContentDamaged: there is no such chunk, or it has another size than the buffer.
        """

    def missing(self, keys: Collection[str], sizes: Mapping[str, int] | None = None) -> set[str]:
        """Those of ``keys`` that are not stored.

        Where ``sizes`` (bytes) has a key, a chunk of another size, cut short by a damaged disk, is missing
        too: whoever has its bytes sends them again.
        """

    def delete(self, key: str) -> None:
        """Remove a chunk; nothing happens if it is not there."""

    def list(self) -> Iterator[BlobInfo]:
        """All chunks, in no particular order. Chunks that come or go meanwhile may be listed or not."""

    def claim(self, database_id: str) -> str:
        """Make the store belong to a database, or check that it does; the id that marks the store.

        Two databases on one store would collect each other's chunks as garbage.

        Raises:
            InvalidSetting: it belongs to another database.
        """

    def mark(self) -> Mark | None:
        """Whose the store is, without claiming it; None while it is nobody's."""

    def close(self) -> None:
        """Let go of connections."""


def done() -> Future[None]:
    """The future of what is done already."""
    future: Future[None] = Future()
    future.set_result(None)
    return future


def check_digest(key: str, data: Buffer) -> None:
    """Raise `ContentDamaged` unless the sha256 of ``data`` is ``key``."""
    found = hashlib.sha256(data).hexdigest()
    if found != key:
        raise ContentDamaged(
            f"Bytes to be stored as chunk {key} have the digest {found}.",
            remedy="Push again; if it happens again, check this machine's memory.",
            chunk=key,
        )


def missing_chunk(url: str, key: str) -> ContentDamaged:
    return ContentDamaged(
        f"Chunk {key} is not in the store {url}.",
        remedy="Restore it from a copy of the store, or push the version's files again.",
        chunk=key,
    )


def wrong_size(url: str, key: str, expected: int) -> ContentDamaged:
    return ContentDamaged(
        f"Chunk {key} in the store {url} does not have its {expected} bytes.",
        remedy="Restore it from a copy of the store, or delete it there and push the version's files again.",
        chunk=key,
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """What ``store.json`` at the root of a store says. It moves with a copy of the store."""

    database: str  # id of the database whose contents these are
    store: str  # id of the store itself

    @classmethod
    def new(cls, database_id: str) -> Mark:
        return cls(database_id, secrets.token_hex(6))

    def to_json(self) -> bytes:
        return (json.dumps({"schema": 1, "database": self.database, "store": self.store}) + "\n").encode()


def read_mark(url: str, marker: bytes) -> Mark:
    """The mark in the bytes of a ``store.json``; raises `ContentDamaged` where there is none in them."""
    try:
        found = json.loads(marker)
        return Mark(str(found["database"]), str(found["store"]))
    except (ValueError, TypeError, LookupError) as error:
        raise ContentDamaged(
            f"store.json of the store {url} is damaged: it does not say whose the store is.",
            remedy="Restore it from a copy; or, if no other database uses the store, delete it.",
        ) from error


def claim_by_mark(
    url: str, read: Callable[[], Mark | None], write: Callable[[Mark], None], database_id: str
) -> str:
    """`BlobStore.claim` over reading the mark, and writing one that never replaces another's."""
    mark = read()
    if mark is None:
        write(Mark.new(database_id))
        mark = read()  # perhaps of one who was faster
    assert mark is not None
    return check_owner(url, mark, database_id)


def check_owner(url: str, mark: Mark, database_id: str) -> str:
    """The store's id; raise `InvalidSetting` unless its owner is this database."""
    if mark.database != database_id:
        raise InvalidSetting(
            f"The store {url} belongs to the database {mark.database}, and this is {database_id}.",
            remedy="Give each database a store (or a prefix) of its own: set PODIUM_BLOBS.",
            owner=mark.database,
            database=database_id,
        )
    return mark.store
