"""The run journal, and the workers that take runs."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import Moment, text, time

_FLIES = sa.text("cache_key IS NOT NULL AND waits_for IS NULL AND state IN ('queued', 'running')")

_EXPIRES = sa.text("expires_at IS NOT NULL AND state = 'queued'")


class RunRow(SQLModel, table=True):
    """One execution of a task. Authority over it is the lease ``run/<id>``."""

    __tablename__ = "run"
    __table_args__ = (
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'interrupted', 'cancelled')",
            name="run_state",
        ),
        sa.CheckConstraint("state <> 'running' OR started_at IS NOT NULL", name="run_started"),
        sa.CheckConstraint("(state IN ('queued', 'running')) = (ended_at IS NULL)", name="run_ended"),
        sa.CheckConstraint("depth >= 0 AND counted_from >= 0", name="run_counts"),
        sa.Index("run_turns", "state", "pool", "turn", "queued_at", "id"),
        sa.Index("run_newest", "queued_at", "id"),
        # A step has its place in its parent once: a second request for it finds the first.
        sa.Index("run_place", "parent", "place", unique=True),
        sa.Index("run_expires", "expires_at", sqlite_where=_EXPIRES, postgresql_where=_EXPIRES),
        sa.Index("run_cached", "cache_key", "state"),
        # Of all that ask for the same cached work at once, one does it; the others wait for that one.
        sa.Index("run_flight", "cache_key", unique=True, sqlite_where=_FLIES, postgresql_where=_FLIES),
    )

    id: str = Field(primary_key=True)
    task: str
    state: str
    arguments: str = text()  # JSON
    code: str | None = Field(default=None, foreign_key="value.id")
    resources: str = text()  # JSON
    pool: str
    publish: str | None = None
    retries: int
    attempts: int = 0
    app: str | None = None
    parent: str | None = Field(default=None, foreign_key="run.id", index=True)
    key: str | None = Field(default=None, unique=True)
    root: str = Field(index=True)  # the run at the top of its tree; itself where it has no parent
    depth: int = 0  # how many runs are above it
    turn: Moment = time()  # when its root was queued: older trees are done first
    place: str | None = text(nullable=True)  # which of its parent's steps it is
    signature: str | None = None  # digest of the task and what it was given
    source: str | None = Field(default=None, foreign_key="run.id")  # the run that really did it, if another
    cache_key: str | None = None  # digest of all that decides what it makes
    waits_for: str | None = Field(default=None, foreign_key="run.id")  # the run that does the same work now
    again: bool = Field(default=False, sa_column_kwargs={"server_default": sa.false()})
    counted_from: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    asked: int = Field(default=0, sa_type=sa.BigInteger, sa_column_kwargs={"server_default": "0"})
    done: int | None = Field(default=None, sa_type=sa.BigInteger)
    actor: str
    causation: str | None = None
    correlation: str | None = None
    captured: str = text(default="{}")  # JSON
    conditions: str = text(default="{}")  # JSON: times that it may take, names of secrets
    expires_at: Moment | None = time(nullable=True)  # until when it may wait for a worker
    result: str | None = text(nullable=True)  # JSON
    error: str | None = text(nullable=True)  # JSON, of the last failed attempt
    queued_at: Moment = time()
    not_before: Moment | None = time(nullable=True)
    started_at: Moment | None = time(nullable=True)
    ended_at: Moment | None = time(nullable=True)


class RunInputRow(SQLModel, table=True):
    __tablename__ = "run_input"

    run: str = Field(foreign_key="run.id", primary_key=True)
    parameter: str = Field(primary_key=True)
    value: str = Field(foreign_key="value.id", index=True)
    role: str
    ref: str | None = None


class RunOutputRow(SQLModel, table=True):
    __tablename__ = "run_output"

    run: str = Field(foreign_key="run.id", primary_key=True)
    name: str = Field(primary_key=True)
    value: str = Field(foreign_key="value.id", index=True)
    ref: str | None = None


class AttemptRow(SQLModel, table=True):
    __tablename__ = "attempt"
    __table_args__ = (
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('succeeded', 'failed', 'interrupted', 'cancelled')",
            name="attempt_outcome",
        ),
        sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="attempt_ended"),
    )

    run: str = Field(foreign_key="run.id", primary_key=True)
    number: int = Field(primary_key=True)
    worker: str
    epoch: int = Field(sa_type=sa.BigInteger)
    started_at: Moment = time()
    ended_at: Moment | None = time(nullable=True)
    outcome: str | None = None
    cause: str | None = None
    error: str | None = text(nullable=True)  # JSON
    environment: str = text(default="{}")  # JSON: versions and hardware it ran with


class RunLogRow(SQLModel, table=True):
    """What attempts printed, in pieces; bytes, because a task may print anything."""

    __tablename__ = "run_log"

    run: str = Field(foreign_key="run.id", primary_key=True)
    sequence: int = Field(primary_key=True)
    attempt: int
    data: bytes = Field(sa_type=sa.LargeBinary)


class WorkerRow(SQLModel, table=True):
    """A process that takes runs. ``seen_at`` is a hint for people; authority is in the leases of its runs."""

    __tablename__ = "worker"

    id: str = Field(primary_key=True)
    pool: str = Field(index=True)
    capacity: str = text()  # JSON
    host: str
    process: str
    started_at: Moment = time()
    seen_at: Moment = time()
