"""Which blob store a database's contents are in: the two name each other, so that neither is mistaken."""

from __future__ import annotations

from registry.content.blobs import BlobStore
from registry.database.statements import sql
from registry.errors import InvalidSetting
from registry.store.session import Session

_STORE = sql("SELECT store_id, store_url FROM podium WHERE one = 1")
_REMEMBER = sql("""
    UPDATE podium SET store_id = :store_id, store_url = :store_url WHERE one = 1 AND store_id IS NULL
""")


def belong(session: Session, store: BlobStore) -> None:
    """Make the store and the database each other's, or check that they are.

    A store that was copied elsewhere with its ``store.json`` is still the same store.

    Raises:
        InvalidSetting: one of them belongs to another. Nothing was changed.
    """
    with session.reading() as reader:
        known, url = reader.one(_STORE)
    if known is not None and store.mark() is None:
        raise _elsewhere(store.url, str(url), "has nothing of it")
    found = store.claim(session.database_id)
    if known is None:
        known, url = _remember(session, found, store.url)
    if found != known:
        raise _elsewhere(store.url, str(url), "is another store")


def _remember(session: Session, store_id: str, url: str) -> tuple[str, str]:
    """Which store it is; another process may just have said so."""
    with session.database.transaction() as transaction:
        transaction.execute(_REMEMBER, store_id=store_id, store_url=url)
        known, first = transaction.one(_STORE)
    return str(known), str(first)


def _elsewhere(url: str, known: str, problem: str) -> InvalidSetting:
    return InvalidSetting(
        f"The contents of this database are in the store {known}, and {url} {problem}",
        remedy=f"Set PODIUM_BLOBS to {known}; to move the store, copy all of it to {url} first, "
        "store.json last.",
        store=known,
    )
