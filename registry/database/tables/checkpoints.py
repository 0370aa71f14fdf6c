"""Checkpoints of runs: which state an attempt leaves to the next."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import Moment, text, time


class CheckpointRow(SQLModel, table=True):
    """One saved state. The whole one with the highest number is where the run's series goes on."""

    __tablename__ = "checkpoint"
    __table_args__ = (sa.CheckConstraint("state IN ('whole', 'damaged')", name="checkpoint_state"),)

    run: str = Field(primary_key=True, foreign_key="run.id")
    series: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    step: int = Field(sa_type=sa.BigInteger)
    digest: str = Field(foreign_key="content.digest", index=True)  # a root of collection
    bytes_sent: int = Field(sa_type=sa.BigInteger)
    attempt: int
    state: str = text(default="whole")
    reason: str = text(default="")
    metadata_json: str = text(default="{}")
    saved_at: Moment = time()
