"""Keys of a deployment's clients, as hashes. Each change raises the generation of the deployment's routes.

So keys reach replicas as routes do: in the one map that a replica must have before it answers anybody.
"""

from __future__ import annotations

from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.errors import NotFound
from registry.events import EventType
from registry.operations import ClientKey, NewKey, hash_key, make_key
from registry.store.operations import emit, require_known
from registry.store.session import Session, check_text

_LONGEST_LABEL = 100  # characters

_COLUMNS = "id, label, sha256, at, actor, revoked_at"
_LIST = sql(f"SELECT {_COLUMNS} FROM client_key WHERE deployment = :deployment ORDER BY at, id")
_GET = sql(f"SELECT {_COLUMNS} FROM client_key WHERE deployment = :deployment AND id = :id {{lock}}")
_ADD = sql("""
    INSERT INTO client_key (deployment, id, label, sha256, actor, at, revoked_at)
    VALUES (:deployment, :id, :label, :sha256, :actor, :at, NULL)
""")
_REVOKE = sql("""
    UPDATE client_key SET revoked_at = :at
    WHERE deployment = :deployment AND id = :id AND revoked_at IS NULL
""")
_FORGET = sql("DELETE FROM client_key WHERE deployment = :deployment")
_RAISE = sql("""
    INSERT INTO route_table (deployment, generation, engine) VALUES (:deployment, 1, '')
    ON CONFLICT (deployment) DO UPDATE SET generation = route_table.generation + 1
""")


class StoredClientKeys:
    """`registry.protocol.ClientKeys` over the database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, deployment: str, label: str = "") -> NewKey:
        check_text(label, "The label", longest=_LONGEST_LABEL)
        id, secret = make_key()
        with self._session.writing() as transaction:
            require_known(transaction, deployment)
            row = {"id": id, "label": label, "sha256": hash_key(secret), "at": self._session.now()}
            transaction.execute(_ADD, deployment=deployment, actor=self._session.origin.actor, **row)
            self._changed(transaction, deployment, id)
            stored = transaction.one(_GET, deployment=deployment, id=id)
        return NewKey(_key(deployment, stored), secret)

    def list(self, deployment: str) -> list[ClientKey]:
        with self._session.reading() as reader:
            require_known(reader, deployment)
            return [_key(deployment, row) for row in reader.all(_LIST, deployment=deployment)]

    def revoke(self, deployment: str, key: str) -> ClientKey:
        with self._session.writing() as transaction:
            require_known(transaction, deployment)
            if transaction.first(_GET, deployment=deployment, id=key) is None:
                raise NotFound(
                    f"Deployment '{deployment}' has no key '{key[:40]}'.",
                    remedy=f"'podium deployments keys list {deployment}' lists the ids of its keys.",
                )
            if transaction.execute(_REVOKE, deployment=deployment, id=key, at=self._session.now()):
                self._changed(transaction, deployment, key)
            return _key(deployment, transaction.one(_GET, deployment=deployment, id=key))

    def open(self, deployment: str) -> None:
        with self._session.writing() as transaction:
            require_known(transaction, deployment)
            if transaction.execute(_FORGET, deployment=deployment):
                self._changed(transaction, deployment, None)

    def _changed(self, transaction: Transaction, deployment: str, key: str | None) -> None:
        transaction.execute(_RAISE, deployment=deployment)
        emit(self._session, transaction, EventType.DEPLOYMENT_REKEYED, deployment, key=key)


def accepted_keys(reader: Transaction, deployment: str) -> dict[str, str] | None:
    """Hashes of the keys that are good, by id; None where there has never been a key."""
    rows = reader.all(_LIST, deployment=deployment)
    if not rows:
        return None
    return {key.id: key.sha256 for key in (_key(deployment, row) for row in rows) if key.revoked_at is None}


def _key(deployment: str, row: Row) -> ClientKey:
    id, label, sha256, at, actor, revoked = row
    return ClientKey(deployment, id, label, sha256, to_time(at), actor, to_time(revoked) if revoked else None)
