"""Measures of runs: what they report of themselves while they go."""

from __future__ import annotations

from sqlmodel import Field, SQLModel

from registry.database.tables.columns import text


class RunMeasureRow(SQLModel, table=True):
    """Measures that an attempt reported together: curves are read whole, so a row holds many points."""

    __tablename__ = "run_measure"

    run: str = Field(foreign_key="run.id", primary_key=True)
    sequence: int = Field(primary_key=True)
    attempt: int
    measures: str = text()  # JSON: [[step, {name: number or null}], ...]
