"""The outbox, the stream it is copied to, leases and apps."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import Moment, text, time

_CAUSED = sa.text("causation IS NOT NULL")


class DatabaseRow(SQLModel, table=True):
    """The single row that says which database this is and how far its events have come."""

    __tablename__ = "podium"
    __table_args__ = (sa.CheckConstraint("one = 1", name="podium_one_row"),)

    one: int = Field(default=1, primary_key=True, sa_column_kwargs={"autoincrement": False})
    database_id: str
    created_at: Moment = time()
    # Raised by each transaction that makes events, as its last statement: so sequences have no gaps and stand
    # in the order of commit, which a counter of PostgreSQL's own does not promise.
    event_sequence: int = Field(default=0, sa_type=sa.BigInteger)
    incarnation: int = 1
    relayed_sequence: int = Field(default=0, sa_type=sa.BigInteger)
    relayed_id: str | None = None
    # The mark of the blob store that its contents are in, and the address at which that was first used.
    store_id: str | None = None
    store_url: str | None = None


class EventRow(SQLModel, table=True):
    __tablename__ = "event"
    __table_args__ = (
        sa.Index("event_key", "key", "sequence"),
        # Most events have no cause but a person, and cost this index nothing.
        sa.Index("event_causation", "causation", sqlite_where=_CAUSED, postgresql_where=_CAUSED),
    )

    sequence: int = Field(sa_type=sa.BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    id: str = Field(unique=True)
    type: str = Field(index=True)
    subject: str
    key: str
    actor: str
    causation: str | None = None
    correlation: str | None = None
    traceparent: str | None = None
    schema_version: int = 1
    data: str = text()  # JSON
    at: Moment = time()


class LeaseRow(SQLModel, table=True):
    """``holder`` is NULL when it is free; ``epoch`` only ever rises."""

    __tablename__ = "lease"

    name: str = Field(primary_key=True)
    holder: str | None = None
    epoch: int = Field(sa_type=sa.BigInteger)
    beat: int = Field(sa_type=sa.BigInteger)


class AppObjectRow(SQLModel, table=True):
    """``target`` is what hot paths look objects up by: a gate's alias, otherwise empty."""

    __tablename__ = "app_object"
    __table_args__ = (sa.Index("app_object_target", "kind", "target"), sa.UniqueConstraint("kind", "name"))

    app: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    target: str = text(default="")
    body: str = text()  # JSON
    revision: int
    changed_at: Moment = time()
