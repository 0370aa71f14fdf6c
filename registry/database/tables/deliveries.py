"""What became of each event at each subscription, and how far each consumer has read."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import Moment, key, refers_to, text, time
from registry.deliveries import OPEN, DeliveryState

_STATES = ", ".join(f"'{state}'" for state in DeliveryState)
_OPEN = sa.text(f"state IN ({', '.join(repr(str(state)) for state in sorted(OPEN))})")


class ConsumerRow(SQLModel, table=True):
    """A durable reader of the stream; all events up to ``sequence`` have their deliveries."""

    __tablename__ = "consumer"

    name: str = Field(primary_key=True)
    sequence: int = Field(sa_type=sa.BigInteger)
    created_at: Moment = time()


class SubscriptionRow(SQLModel, table=True):
    """A subscription that a consumer has begun to serve; earlier events than ``since`` are not for it."""

    __tablename__ = "subscription"

    consumer: str = Field(primary_key=True, foreign_key="consumer.name")
    name: str = Field(primary_key=True)
    since: int = Field(sa_type=sa.BigInteger)
    created_at: Moment = time()


class DeliveryRow(SQLModel, table=True):
    __tablename__ = "delivery"
    __table_args__ = (
        sa.UniqueConstraint("consumer", "subscription", "event_sequence", "replay"),
        sa.CheckConstraint(f"state IN ({_STATES})", name="delivery_state"),
        sa.CheckConstraint("(state = 'held') = (waits_for IS NOT NULL)", name="delivery_waits"),
        # Only what is open is searched in the hot path, and little is open at a time.
        sa.Index(
            "delivery_turn",
            *("consumer", "subscription", "key", "position"),
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
        sa.Index("delivery_due", "consumer", "due_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
        sa.Index("delivery_state_position", "state", "position"),
    )

    position: int | None = key()
    id: str = Field(unique=True)
    consumer: str
    subscription: str
    event_sequence: int = refers_to("event.sequence", index=True)
    key: str
    replay: int = 0
    access: str
    state: str
    attempts: int = 0
    epoch: int = Field(default=0, sa_type=sa.BigInteger)
    due_at: Moment = time()
    created_at: Moment = time()
    changed_at: Moment = time()
    error: str | None = text(nullable=True)
    waits_for: str | None = None
