"""Orders to deployments: each is one transaction with its event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from registry.database.engine import Transaction, to_time
from registry.database.statements import sql
from registry.deployments import Block
from registry.errors import NotFound
from registry.events import DeploymentTold, EventType
from registry.operations import Intent
from registry.store.session import Session, check_text

_KNOWN = sql("""
    SELECT name FROM app_object WHERE kind = 'deployment'
    UNION SELECT deployment FROM route UNION SELECT deployment FROM rollout WHERE past = 0 ORDER BY 1
""")
_INTENT = sql("""
    SELECT paused, reason, actor, at, restarts FROM deployment_intent WHERE deployment = :deployment {lock}
""")
_PUT_INTENT = sql("""
    INSERT INTO deployment_intent (deployment, paused, reason, actor, at, restarts)
    VALUES (:deployment, :paused, :reason, :actor, :at, :restarts)
    ON CONFLICT (deployment) DO UPDATE
    SET paused = excluded.paused, reason = excluded.reason, actor = excluded.actor, at = excluded.at,
        restarts = excluded.restarts
""")
_BLOCKS = sql("""
    SELECT deployment, digest, base_digest, engine, reason, at FROM block
    WHERE deployment = :deployment AND digest = :digest ORDER BY at
""")
_UNBLOCK = sql("DELETE FROM block WHERE deployment = :deployment AND digest = :digest")
# A rollout that failed is ended for good; as a past one it makes way for another of the same target. Only
# where that is still asked for: what has been moved on from keeps its end.
_TRY_AGAIN = sql("""
    UPDATE rollout SET past = 1
    WHERE deployment = :deployment AND past = 0 AND state = 'failed'
    AND (CAST(:digest AS TEXT) IS NULL OR digest = :digest)
    AND digest NOT IN (SELECT digest FROM block WHERE deployment = :deployment)
    AND generation = COALESCE((
        SELECT a.generation FROM alias a JOIN artifact r ON r.id = a.artifact_id
        WHERE r.name = rollout.artifact AND a.name = rollout.alias), 0)
""")


class StoredOperations:
    """`registry.protocol.Operations` over the database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def intent(self, deployment: str) -> Intent:
        with self._session.reading() as reader:
            return _intent(reader, deployment)

    def pause(self, deployment: str, reason: str = "") -> Intent:
        check_text(reason, "The reason")
        return self._change(
            deployment,
            EventType.DEPLOYMENT_PAUSED,
            lambda intent: replace(intent, paused=True, reason=reason),
            lambda intent: intent.paused and intent.reason == reason,
        )

    def resume(self, deployment: str) -> Intent:
        return self._change(
            deployment,
            EventType.DEPLOYMENT_RESUMED,
            lambda intent: replace(intent, paused=False, reason=""),
            lambda intent: not intent.paused,
        )

    def restart(self, deployment: str) -> Intent:
        with self._session.writing() as transaction:
            told = self._change(
                deployment,
                EventType.DEPLOYMENT_RESTARTED,
                lambda intent: replace(intent, restarts=intent.restarts + 1),
                lambda intent: False,
            )
            transaction.execute(_TRY_AGAIN, deployment=deployment, digest=None)
            return told

    def unblock(self, deployment: str, digest: str) -> list[Block]:
        with self._session.writing() as transaction:
            require_known(transaction, deployment)
            rows = transaction.all(_BLOCKS, deployment=deployment, digest=digest)
            if not rows:
                raise NotFound(
                    f"Deployment '{deployment}' blocks no content {digest[:19]}.",
                    remedy=f"'podium deployments show {deployment}' lists what it blocks.",
                )
            transaction.execute(_UNBLOCK, deployment=deployment, digest=digest)
            transaction.execute(_TRY_AGAIN, deployment=deployment, digest=digest)
            emit(self._session, transaction, EventType.DEPLOYMENT_UNBLOCKED, deployment, digest=digest)
        return [
            Block(name, content, base, engine, why, to_time(at))
            for name, content, base, engine, why, at in rows
        ]

    def _change(
        self,
        deployment: str,
        event: EventType,
        change: Callable[[Intent], Intent],
        is_so: Callable[[Intent], bool],
    ) -> Intent:
        """Store a changed intent with its event; what is so already is left as it is."""
        with self._session.writing() as transaction:
            require_known(transaction, deployment)
            before = _intent(transaction, deployment)
            if is_so(before):
                return before
            after = replace(change(before), by=self._session.origin.actor, at=self._session.now())
            transaction.execute(
                _PUT_INTENT,
                deployment=deployment,
                paused=int(after.paused),
                reason=after.reason,
                actor=after.by,
                at=after.at,
                restarts=after.restarts,
            )
            emit(self._session, transaction, event, deployment, reason=after.reason)
            return after


def require_known(reader: Transaction, deployment: str) -> None:
    """Raise `NotFound` for a deployment that is neither declared nor running, naming those that are."""
    known = [name for (name,) in reader.all(_KNOWN)]
    if deployment not in known:
        there = (
            f"There are: {', '.join(known)}." if known else "None is deployed: see 'podium deploy --help'."
        )
        raise NotFound(f"There is no deployment '{deployment[:100]}'.", remedy=there)


def emit(
    session: Session,
    transaction: Transaction,
    type: EventType,
    deployment: str,
    *,
    reason: str = "",
    digest: str | None = None,
    key: str | None = None,
) -> None:
    """Write the event of an order; it also wakes the controller."""
    data = DeploymentTold(deployment=deployment, reason=reason, digest=digest, key=key)
    session.emit(transaction, type, data, subject=deployment, key=deployment)


def _intent(reader: Transaction, deployment: str) -> Intent:
    row = reader.first(_INTENT, deployment=deployment)
    if row is None:
        return Intent(deployment)
    paused, reason, actor, at, restarts = row
    return Intent(deployment, bool(paused), reason, actor, to_time(at), restarts)
