"""Rollouts, routes, blocks, what people told deployments, and what was last seen of them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import Moment, text, time


class RouteTableRow(SQLModel, table=True):
    """The generation of all routes of a deployment together."""

    __tablename__ = "route_table"

    deployment: str = Field(primary_key=True)
    generation: int
    engine: str = text(default="")  # settings with which the base runs; empty: none yet


class RouteRow(SQLModel, table=True):
    __tablename__ = "route"

    deployment: str = Field(primary_key=True, foreign_key="route_table.deployment")
    served: str = Field(primary_key=True)  # empty: the base model
    ref: str
    digest: str = Field(index=True)
    generation: int
    rollout: str
    previous_ref: str | None = None
    previous_digest: str | None = Field(default=None, index=True)


class RolloutRow(SQLModel, table=True):
    """``order_no`` counts the rollouts of a deployment; at most one of a served name is open."""

    __tablename__ = "rollout"
    __table_args__ = (
        sa.CheckConstraint(
            "state IN ('started', 'flipped', 'live', 'failed', 'superseded')", name="rollout_state"
        ),
        sa.Index(
            "rollout_target",
            *("deployment", "revision", "served", "artifact", "alias", "generation", "version"),
            unique=True,
            sqlite_where=sa.text("past = 0"),
            postgresql_where=sa.text("past = 0"),
        ),
        sa.UniqueConstraint("deployment", "order_no"),
        sa.Index(
            "rollout_open",
            "deployment",
            "served",
            unique=True,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
        sa.Index("rollout_promotion", "artifact", "alias", "generation"),
    )

    id: str = Field(primary_key=True)
    deployment: str
    order_no: int
    revision: int
    served: str
    artifact: str
    alias: str = text(default="")  # empty: none. (A NULL would not count in the unique key.)
    generation: int
    version: int
    digest: str = Field(index=True)
    state: str
    reason: str = text(default="")
    past: int = 0  # 1: the deployment was removed since, or a person asked for another try: it begins anew
    started_at: Moment = time()
    ended_at: Moment | None = time(nullable=True)


class BlockRow(SQLModel, table=True):
    __tablename__ = "block"

    deployment: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    base_digest: str = Field(primary_key=True)
    engine: str = Field(primary_key=True)
    reason: str = text()
    at: Moment = time()


class ReplicaRow(SQLModel, table=True):
    __tablename__ = "replica"

    deployment: str = Field(primary_key=True)
    index_no: int = Field(primary_key=True)
    status: str = text()  # JSON
    at: Moment = time()


class IntentRow(SQLModel, table=True):
    __tablename__ = "deployment_intent"

    deployment: str = Field(primary_key=True)
    paused: int
    reason: str = text(default="")
    actor: str
    at: Moment = time()
    restarts: int


class ClientKeyRow(SQLModel, table=True):
    """Revoked keys stay: a deployment that has ever had one is not opened by revoking the last."""

    __tablename__ = "client_key"

    deployment: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    label: str
    sha256: str
    actor: str
    at: Moment = time()
    revoked_at: Moment | None = time(nullable=True)


class ConditionRow(SQLModel, table=True):
    __tablename__ = "deployment_condition"

    deployment: str = Field(primary_key=True)
    type: str = Field(primary_key=True)
    holds: int
    reason: str = text(default="")
    since: Moment = time()
