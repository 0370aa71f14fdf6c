"""Column types that several tables share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field

BigKey = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def key() -> Any:
    """A surrogate primary key that the database counts up."""
    return Field(default=None, sa_type=BigKey, primary_key=True)


def refers_to(column: str, *, index: bool = False, primary_key: bool = False, nullable: bool = False) -> Any:
    """A foreign key to a `key` column."""
    return Field(
        sa_type=BigKey,
        foreign_key=column,
        index=index,
        primary_key=primary_key,
        nullable=nullable,
        ondelete="RESTRICT",
    )


def time(*, nullable: bool = False) -> Any:
    """A moment, with its zone."""
    return Field(sa_type=sa.DateTime(timezone=True), nullable=nullable)


def text(*, nullable: bool = False, default: str | None = None) -> Any:
    """Text of any length."""
    server_default = None if default is None else sa.text(f"'{default}'")
    return Field(sa_type=sa.Text, nullable=nullable, sa_column_kwargs={"server_default": server_default})


Moment = datetime
