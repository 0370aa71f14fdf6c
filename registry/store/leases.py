"""Leases: who does a piece of work, fenced by an epoch."""

from __future__ import annotations

from collections.abc import Collection

from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.store.session import Session
from registry.values import Lease

_ACQUIRE = sql("""
    INSERT INTO lease (name, holder, epoch, beat) VALUES (:name, :holder, 1, 0)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = lease.epoch + 1, beat = 0
    WHERE lease.holder IS NULL OR (lease.epoch = :seen_epoch AND lease.beat = :seen_beat)
    RETURNING epoch
""")
_GET = sql("SELECT name, holder, epoch, beat FROM lease WHERE name = :name AND holder IS NOT NULL")
_HELD = sql("""
    SELECT name, holder, epoch, beat FROM lease
    WHERE name >= :first AND name < :after AND holder IS NOT NULL ORDER BY name
""")
_BEAT = sql("""
    UPDATE lease SET beat = beat + 1 WHERE name = :name AND epoch = :epoch AND holder = :holder RETURNING beat
""")
_RELEASE = sql("UPDATE lease SET holder = NULL WHERE name = :name AND epoch = :epoch AND holder = :holder")


def acquire(transaction: Transaction, name: str, holder: str, seen: Lease | None = None) -> Lease | None:
    """`Leases.acquire` as part of a larger transaction, such as the claim of a run."""
    row = transaction.first(
        _ACQUIRE,
        name=name,
        holder=holder,
        seen_epoch=seen.epoch if seen else -1,
        seen_beat=seen.beat if seen else -1,
    )
    return None if row is None else Lease(name, holder, row[0], 0)


def release(transaction: Transaction, lease: Lease) -> bool:
    """`Leases.release` as part of a larger transaction; whether it was still ours."""
    return transaction.execute(_RELEASE, name=lease.name, epoch=lease.epoch, holder=lease.holder) == 1


class StoredLeases:
    def __init__(self, session: Session) -> None:
        self._session = session

    def acquire(self, name: str, holder: str, *, seen: Lease | None = None) -> Lease | None:
        with self._session.database.transaction() as transaction:
            return acquire(transaction, name, holder, seen)

    def get(self, name: str) -> Lease | None:
        with self._session.reading() as reader:
            row = reader.first(_GET, name=name)
        return Lease(*row) if row else None

    def beat(self, leases: Collection[Lease]) -> list[Lease]:
        if not leases:
            return []
        held = []
        with self._session.database.transaction() as transaction:
            # In one order, so that two holders who beat at once do not wait for each other.
            for lease in sorted(leases, key=lambda lease: lease.name):
                row = transaction.first(_BEAT, name=lease.name, epoch=lease.epoch, holder=lease.holder)
                if row is not None:
                    held.append(Lease(lease.name, lease.holder, lease.epoch, row[0]))
        return held

    def release(self, lease: Lease) -> None:
        with self._session.database.transaction() as transaction:
            release(transaction, lease)

    def held(self, prefix: str) -> list[Lease]:
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        with self._session.reading() as reader:
            return [Lease(*row) for row in reader.all(_HELD, first=prefix, after=after)]
