"""Rollouts, routes and blocks. Each change of a rollout is one transaction with its event."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from registry.database.engine import Transaction, to_time
from registry.database.statements import sql
from registry.deployments import (
    TERMINAL,
    TRANSITIONS,
    Block,
    Condition,
    ConditionType,
    Loaded,
    ReplicaStatus,
    Rollout,
    RolloutState,
    Route,
    RouteTable,
    Target,
)
from registry.errors import InvalidInput, NotFound, Refused
from registry.events import EventType, RolloutChanged
from registry.store.client_keys import accepted_keys
from registry.store.rollout_rows import identity, to_rollout, to_route, to_status
from registry.store.session import Session, to_json
from registry.store.usage import deployments_using
from registry.text import storable

_LONGEST_REASON = 10_000  # characters: what an engine said may be long, and its event must be sent

_EVENTS = {
    RolloutState.STARTED: EventType.ROLLOUT_STARTED,
    RolloutState.LIVE: EventType.ROLLOUT_LIVE,
    RolloutState.FAILED: EventType.ROLLOUT_FAILED,
    RolloutState.SUPERSEDED: EventType.ROLLOUT_SUPERSEDED,
}
_COLUMNS = """
    id, deployment, revision, served, artifact, alias, generation, version, digest, state, started_at,
    ended_at, reason
"""
_OPEN = sql(f"SELECT {_COLUMNS} FROM rollout WHERE deployment = :deployment AND ended_at IS NULL")
_LATEST = sql(f"""
    SELECT {_COLUMNS} FROM rollout WHERE order_no IN (
        SELECT MAX(order_no) FROM rollout WHERE deployment = :deployment AND past = 0 GROUP BY served
    ) AND deployment = :deployment
""")
_LIST = sql(f"""
    SELECT {_COLUMNS} FROM rollout WHERE (CAST(:deployment AS TEXT) IS NULL OR deployment = :deployment)
      AND (CAST(:before AS TEXT) IS NULL OR (started_at, order_no) < (
          SELECT last.started_at, last.order_no FROM rollout last WHERE last.id = :before
      ))
    ORDER BY started_at DESC, order_no DESC LIMIT :limit
""")
_OF_PROMOTION = sql(f"""
    SELECT {_COLUMNS} FROM rollout
    WHERE artifact = :artifact AND alias = :alias AND generation = :generation ORDER BY deployment, order_no
""")
_WERE_LIVE = sql(f"""
    SELECT {_COLUMNS} FROM rollout WHERE artifact = :artifact AND alias = :alias AND state = 'live'
    ORDER BY generation DESC, order_no DESC LIMIT :limit
""")
_GET = sql(f"SELECT {_COLUMNS} FROM rollout WHERE id = :id {{lock}}")
_SAME = sql(f"""
    SELECT {_COLUMNS} FROM rollout
    WHERE deployment = :deployment AND revision = :revision AND served = :served AND artifact = :artifact
    AND alias = :alias AND generation = :generation AND version = :version AND past = 0
""")
_INSERT = sql("""
    INSERT INTO rollout (id, deployment, order_no, revision, served, artifact, alias, generation, version,
                         digest, state, reason, past, started_at, ended_at)
    VALUES (:id, CAST(:deployment AS TEXT),
            (SELECT COALESCE(MAX(order_no), 0) + 1 FROM rollout WHERE deployment = CAST(:deployment AS TEXT)),
            :revision, :served, :artifact, :alias, :generation, :version,
            :digest, 'started', '', 0, :now, NULL)
""")
_MOVE = sql("UPDATE rollout SET state = :state, reason = :reason, ended_at = :ended_at WHERE id = :id")
_FOLLOWED = sql("""
    SELECT MAX(generation) FROM rollout
    WHERE deployment = :deployment AND served = :served AND artifact = :artifact AND alias = :alias
    AND past = 0
""")
_SKIPPED = sql("""
    SELECT p.generation, v.number, v.digest FROM promotion p
    JOIN artifact a ON a.id = p.artifact_id JOIN version v ON v.id = p.to_version_id
    WHERE a.name = :artifact AND p.alias = :alias AND p.generation > :after AND p.generation < :before
    ORDER BY p.generation
""")
_PROMOTED_AT = sql("""
    SELECT p.at FROM promotion p JOIN artifact a ON a.id = p.artifact_id
    WHERE a.name = :artifact AND p.alias = :alias AND p.generation = :generation
""")
_TABLE = sql("SELECT generation, engine FROM route_table WHERE deployment = :deployment")
_RAISE = sql("""
    INSERT INTO route_table (deployment, generation, engine) VALUES (:deployment, 1, '')
    ON CONFLICT (deployment) DO UPDATE SET generation = route_table.generation + 1
""")
_RECORD_ENGINE = sql("UPDATE route_table SET engine = :engine WHERE deployment = :deployment")
_ROUTES = sql("""
    SELECT served, ref, digest, generation, rollout, previous_ref, previous_digest
    FROM route WHERE deployment = :deployment ORDER BY served
""")
_PUT_ROUTE = sql("""
    INSERT INTO route (deployment, served, ref, digest, generation, rollout, previous_ref, previous_digest)
    VALUES (:deployment, :served, :ref, :digest, :generation, :rollout, :previous_ref, :previous_digest)
    ON CONFLICT (deployment, served) DO UPDATE
    SET ref = excluded.ref, digest = excluded.digest, generation = excluded.generation,
        rollout = excluded.rollout, previous_ref = excluded.previous_ref,
        previous_digest = excluded.previous_digest
""")
_DROP_ROUTE = sql("DELETE FROM route WHERE deployment = :deployment AND served = :served")
_WITH_ROUTES = sql("SELECT DISTINCT deployment FROM route ORDER BY deployment")
_ACTIVE = sql("""
    SELECT deployment FROM route UNION SELECT deployment FROM rollout WHERE past = 0 ORDER BY deployment
""")
_BURY = sql("UPDATE rollout SET past = 1 WHERE deployment = :deployment AND ended_at IS NOT NULL")
_UNBLOCK_ALL = sql("DELETE FROM block WHERE deployment = :deployment")
_BLOCK = sql("""
    INSERT INTO block (deployment, digest, base_digest, engine, reason, at)
    VALUES (:deployment, :digest, :base_digest, :engine, :reason, :now)
    ON CONFLICT (deployment, digest, base_digest, engine) DO NOTHING
""")
_BLOCKS = sql("""
    SELECT deployment, digest, base_digest, engine, reason, at FROM block
    WHERE deployment = :deployment ORDER BY at
""")
_PUT_REPLICA = sql("""
    INSERT INTO replica (deployment, index_no, status, at) VALUES (:deployment, :index, :status, :now)
    ON CONFLICT (deployment, index_no) DO UPDATE SET status = excluded.status, at = excluded.at
""")
_DROP_REPLICAS = sql("DELETE FROM replica WHERE deployment = :deployment AND index_no >= :count")
_REPLICAS = sql("""
    SELECT status, at FROM replica WHERE (CAST(:deployment AS TEXT) IS NULL OR deployment = :deployment)
    ORDER BY deployment, index_no
""")
_CONDITIONS = sql("""
    SELECT type, holds, reason, since FROM deployment_condition WHERE deployment = :deployment ORDER BY type
""")
_PUT_CONDITION = sql("""
    INSERT INTO deployment_condition (deployment, type, holds, reason, since)
    VALUES (:deployment, :type, :holds, :reason, :now)
    ON CONFLICT (deployment, type) DO UPDATE
    SET holds = excluded.holds, reason = excluded.reason,
        since = CASE WHEN deployment_condition.holds = excluded.holds
                THEN deployment_condition.since ELSE excluded.since END
""")
_DROP_INTENT = sql("DELETE FROM deployment_intent WHERE deployment = :deployment")
_DROP_CONDITIONS = sql("DELETE FROM deployment_condition WHERE deployment = :deployment")


class StoredDeployments:
    """`registry.protocol.Deployments` over the database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, target: Target) -> Rollout:
        with self._session.writing() as transaction:
            same = transaction.first(_SAME, **identity(target))
            if same is not None:
                return to_rollout(same)
            self._make_way(transaction, target)
            self._skip_between(transaction, target)
            return self._insert(transaction, target)

    def flip(self, rollout_id: str) -> Route:
        with self._session.writing() as transaction:
            rollout = self._move(transaction, rollout_id, RolloutState.FLIPPED, "")
            return _put_route(transaction, rollout)

    def record_engine(self, deployment: str, engine: str) -> None:
        with self._session.writing() as transaction:
            transaction.execute(_RECORD_ENGINE, deployment=deployment, engine=engine)

    def finish(self, rollout_id: str, state: RolloutState, reason: str = "") -> Rollout:
        if state not in TERMINAL:
            raise InvalidInput(
                f"The state '{state}' does not end a rollout.",
                remedy=f"Use one of {', '.join(sorted(TERMINAL))}.",
            )
        with self._session.writing() as transaction:
            return self._move(transaction, rollout_id, state, reason)

    def record_revert(self, rollout: Rollout, reason: str) -> None:
        with self._session.writing() as transaction:
            self._emit(transaction, EventType.ROLLOUT_REVERTED, rollout.target, reason)

    def drop_route(self, deployment: str, served: str) -> None:
        with self._session.writing() as transaction:
            if transaction.execute(_DROP_ROUTE, deployment=deployment, served=served):
                transaction.execute(_RAISE, deployment=deployment)

    def open_rollouts(self, deployment: str) -> list[Rollout]:
        return self._rollouts(_OPEN, deployment=deployment)

    def latest_rollouts(self, deployment: str) -> list[Rollout]:
        return self._rollouts(_LATEST, deployment=deployment)

    def rollouts(
        self, deployment: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> list[Rollout]:
        return self._rollouts(_LIST, deployment=deployment, before=before, limit=limit)

    def of_promotion(self, artifact: str, alias: str, generation: int) -> list[Rollout]:
        return self._rollouts(_OF_PROMOTION, artifact=artifact, alias=alias, generation=generation)

    def were_live(self, artifact: str, alias: str, *, limit: int = 50) -> list[Rollout]:
        return self._rollouts(_WERE_LIVE, artifact=artifact, alias=alias, limit=limit)

    def routes(self, deployment: str) -> RouteTable:
        with self._session.reading() as reader:
            generation, engine = reader.first(_TABLE, deployment=deployment) or (0, "")
            routes = [to_route(row) for row in reader.all(_ROUTES, deployment=deployment)]
            keys = accepted_keys(reader, deployment)
        return RouteTable(generation, {route.served: route for route in routes}, engine, keys)

    def with_routes(self) -> list[str]:
        with self._session.reading() as reader:
            return [row[0] for row in reader.all(_WITH_ROUTES)]

    def active(self) -> list[str]:
        with self._session.reading() as reader:
            return [row[0] for row in reader.all(_ACTIVE)]

    def forget(self, deployment: str) -> None:
        with self._session.writing() as transaction:
            transaction.execute(_BURY, deployment=deployment)
            transaction.execute(_UNBLOCK_ALL, deployment=deployment)
            transaction.execute(_DROP_REPLICAS, deployment=deployment, count=0)
            transaction.execute(_DROP_CONDITIONS, deployment=deployment)
            transaction.execute(_DROP_INTENT, deployment=deployment)  # but no key: closed stays closed

    def block(self, block: Block) -> None:
        with self._session.writing() as transaction:
            transaction.execute(
                _BLOCK,
                deployment=block.deployment,
                digest=block.digest,
                base_digest=block.base_digest,
                engine=block.engine,
                reason=block.reason,
                now=self._session.now(),
            )

    def blocks(self, deployment: str) -> list[Block]:
        with self._session.reading() as reader:
            rows = reader.all(_BLOCKS, deployment=deployment)
        return [
            Block(d, digest, base, engine, reason, to_time(at))
            for d, digest, base, engine, reason, at in rows
        ]

    def observe(
        self, deployment: str, replicas: Sequence[ReplicaStatus], conditions: Sequence[Condition] = ()
    ) -> None:
        with self._session.writing() as transaction:
            now = self._session.now()
            for status in replicas:
                body = to_json(replace(status, at=None).to_json())
                transaction.execute(
                    _PUT_REPLICA, deployment=deployment, index=status.index, status=body, now=now
                )
            transaction.execute(_DROP_REPLICAS, deployment=deployment, count=len(replicas))
            for condition in conditions:
                _put_condition(transaction, deployment, condition, now)

    def conditions(self, deployment: str) -> list[Condition]:
        with self._session.reading() as reader:
            rows = reader.all(_CONDITIONS, deployment=deployment)
        return [Condition(ConditionType(t), bool(h), why, to_time(at)) for t, h, why, at in rows]

    def replicas(self, deployment: str | None = None) -> list[ReplicaStatus]:
        with self._session.reading() as reader:
            rows = reader.all(_REPLICAS, deployment=deployment)
        return [to_status(row) for row in rows]

    def users(self, digest: str) -> list[str]:
        with self._session.reading() as reader:
            return deployments_using(reader, digest)

    def _rollouts(self, statement: object, **parameters: object) -> list[Rollout]:
        with self._session.reading() as reader:
            return [to_rollout(row) for row in reader.all(statement, **parameters)]  # type: ignore[arg-type]

    def _make_way(self, transaction: Transaction, target: Target) -> None:
        """End the open rollout of the same name, which the new one replaces."""
        for row in transaction.all(_OPEN, deployment=target.deployment):
            rollout = to_rollout(row)
            if rollout.target.served == target.served:
                self._move(transaction, rollout.id, RolloutState.SUPERSEDED, f"{target.ref} was asked for")

    def _skip_between(self, transaction: Transaction, target: Target) -> None:
        """Each promotion ends somewhere: those that came and went unseen are superseded."""
        if target.alias is None:
            return
        followed = transaction.one(
            _FOLLOWED,
            deployment=target.deployment,
            served=target.served,
            artifact=target.artifact,
            alias=target.alias,
        )[0]
        if followed is None:
            return
        skipped = transaction.all(
            _SKIPPED, artifact=target.artifact, alias=target.alias, after=followed, before=target.generation
        )
        for generation, version, digest in skipped:
            passed = replace(target, generation=generation, version=version, digest=digest)
            rollout = self._insert(transaction, passed, announce=False)
            self._move(transaction, rollout.id, RolloutState.SUPERSEDED, f"{target.ref} was asked for")

    def _insert(self, transaction: Transaction, target: Target, *, announce: bool = True) -> Rollout:
        rollout = Rollout(uuid.uuid4().hex, target, RolloutState.STARTED, self._session.now())
        transaction.execute(
            _INSERT, id=rollout.id, now=rollout.started_at, digest=target.digest, **identity(target)
        )
        if announce:
            self._emit(transaction, EventType.ROLLOUT_STARTED, target, "")
        return rollout

    def _move(self, transaction: Transaction, rollout_id: str, state: RolloutState, reason: str) -> Rollout:
        row = transaction.first(_GET, id=rollout_id)
        if row is None:
            raise NotFound(f"There is no rollout '{rollout_id[:40]}'.", remedy="See 'podium events list'.")
        rollout = to_rollout(row)
        if state not in TRANSITIONS[rollout.state]:
            raise Refused(
                f"The rollout of {rollout.target.ref} is {rollout.state} and cannot become {state}.",
                remedy="Another controller has carried it on; look again.",
            )
        ended = self._session.now() if state in TERMINAL else None
        reason = storable(reason)[:_LONGEST_REASON]
        transaction.execute(_MOVE, id=rollout_id, state=state.value, reason=reason, ended_at=ended)
        if state in TERMINAL:
            self._emit(transaction, _EVENTS[state], rollout.target, reason)
        return replace(rollout, state=state, reason=reason, ended_at=ended)

    def _emit(self, transaction: Transaction, type: EventType, target: Target, reason: str) -> None:
        promoted = transaction.first(
            _PROMOTED_AT, artifact=target.artifact, alias=target.alias or "", generation=target.generation
        )
        seconds = (self._session.now() - to_time(promoted[0])).total_seconds() if promoted else None
        data = RolloutChanged(
            deployment=target.deployment,
            served=target.served,
            artifact=target.artifact,
            alias=target.alias,
            version=target.version,
            generation=target.generation,
            reason=reason,
            seconds=seconds,
        )
        subject = f"{target.artifact}:{target.alias}" if target.alias else target.ref
        self._session.emit(transaction, type, data, subject=subject, key=target.artifact)


def _put_condition(transaction: Transaction, deployment: str, condition: Condition, now: datetime) -> None:
    if condition.holds is None:
        raise InvalidInput(
            f"Whether '{deployment}' is {condition.type} has to be yes or no.",
            remedy="Leave out a condition of which nothing is known.",
        )
    transaction.execute(
        _PUT_CONDITION,
        deployment=deployment,
        type=condition.type.value,
        holds=int(bool(condition.holds)),
        reason=storable(condition.reason)[:_LONGEST_REASON],
        now=now,
    )


def _put_route(transaction: Transaction, rollout: Rollout) -> Route:
    target = rollout.target
    rows = transaction.all(_ROUTES, deployment=target.deployment)
    before = next((to_route(row) for row in rows if row[0] == target.served), None)
    current = Loaded(target.ref, target.digest)
    previous = None
    if before is not None:
        # Routing again to what is live keeps what is ready for a rollback.
        previous = before.previous if before.current == current else before.current
    route = Route(target.served, current, target.generation, rollout.id, previous)
    transaction.execute(_RAISE, deployment=target.deployment)
    transaction.execute(
        _PUT_ROUTE,
        deployment=target.deployment,
        served=target.served,
        ref=current.ref,
        digest=current.digest,
        generation=target.generation,
        rollout=rollout.id,
        previous_ref=previous.ref if previous else None,
        previous_digest=previous.digest if previous else None,
    )
    return route
