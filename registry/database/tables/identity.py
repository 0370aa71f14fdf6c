"""Tokens, protected aliases, approvals, the audit trail, and answers that were given to writes over HTTP."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import Moment, key, text, time


class TokenRow(SQLModel, table=True):
    """``hash`` is all that is kept of a secret. ``run`` and ``epoch`` are those of a run's own token."""

    __tablename__ = "token"
    __table_args__ = (sa.Index("token_run", "run", "epoch"),)

    id: str = Field(primary_key=True)
    hash: str
    name: str
    role: str
    pattern: str
    run: str | None = None
    epoch: int | None = Field(default=None, sa_type=sa.BigInteger)
    created_at: Moment = time()
    created_by: str
    expires_at: Moment | None = time(nullable=True)
    revoked_at: Moment | None = time(nullable=True)


class ProtectionRow(SQLModel, table=True):
    __tablename__ = "protection"

    artifact: str = Field(primary_key=True)  # name or glob
    alias: str = Field(primary_key=True)
    role: str


class ApprovalRow(SQLModel, table=True):
    __tablename__ = "approval"
    __table_args__ = (sa.Index("approval_digest", "digest"),)

    id: int = key()
    artifact: str
    alias: str
    version: int
    digest: str
    actor: str
    role: str
    reason: str = text(default="")
    at: Moment = time()


class AuditRow(SQLModel, table=True):
    __tablename__ = "audit"

    id: int = key()
    at: Moment = time()
    token: str | None = None
    actor: str
    operation: str
    target: str = text()
    status: int
    address: str


class AnswerRow(SQLModel, table=True):
    """What a write was answered, so that the same request sent again is not done again."""

    __tablename__ = "answer"
    __table_args__ = (sa.Index("answer_at", "at"),)

    token: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    request: str  # digest of operation, path and body
    status: int
    body: str = text()
    at: Moment = time()
