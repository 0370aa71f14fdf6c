"""Aliases, their history, and the evidence that gates judge."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import BigKey, Moment, key, refers_to, text, time


class AliasRow(SQLModel, table=True):
    """What should be live. ``held_by`` is set by a rollback until somebody releases it."""

    __tablename__ = "alias"

    artifact_id: int = Field(sa_type=BigKey, foreign_key="artifact.id", primary_key=True)
    name: str = Field(primary_key=True)
    version_id: int = refers_to("version.id", index=True)
    generation: int
    moved_at: Moment = time()
    held_by: str | None = None
    held_at: Moment | None = time(nullable=True)
    hold_reason: str | None = text(nullable=True)


class PromotionRow(SQLModel, table=True):
    __tablename__ = "promotion"
    __table_args__ = (
        sa.UniqueConstraint("artifact_id", "alias", "generation"),
        sa.CheckConstraint("action IN ('promote', 'rollback', 'revert')", name="promotion_action"),
    )

    id: int | None = key()
    artifact_id: int = refers_to("artifact.id")
    alias: str
    generation: int
    action: str
    from_version_id: int | None = refers_to("version.id", nullable=True, index=True)
    to_version_id: int = refers_to("version.id", index=True)
    actor: str
    reason: str = text()
    verdicts: str = text()  # JSON
    event: str  # id of the event of this move
    at: Moment = time()


class EvaluationRow(SQLModel, table=True):
    """A published report: which content it judged, on which data, made by which task."""

    __tablename__ = "evaluation"
    __table_args__ = (sa.Index("evaluation_subject", "subject_digest", "dataset_digest"),)

    id: int | None = key()
    report: str = Field(foreign_key="value.id", unique=True)
    subject_digest: str
    dataset_digest: str
    evaluator: str
    at: Moment = time()


class ScoreRow(SQLModel, table=True):
    __tablename__ = "score"

    evaluation_id: int = Field(sa_type=BigKey, foreign_key="evaluation.id", primary_key=True)
    metric: str = Field(primary_key=True)
    value: float
    base: float | None = None
    higher_is_better: bool
    n: int | None = None


class ExampleScoreRow(SQLModel, table=True):
    """Scores of single held-out examples, for paired tests. ``scores`` is JSON: example id -> score."""

    __tablename__ = "example_score"

    evaluation_id: int = Field(sa_type=BigKey, foreign_key="evaluation.id", primary_key=True)
    metric: str = Field(primary_key=True)
    subject: str = Field(primary_key=True)  # "tuned" or "base"
    scores: str = text()
