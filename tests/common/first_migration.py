"""Writes the first migration from the tables as they are declared.

    python -m tests.common.first_migration

Until podium is released there is one migration, and it is written anew when a table changes. From then on it
stays as it is, and a change is a migration of its own; then this file can go.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.autogenerate.api import AutogenContext
from alembic.migration import MigrationContext
from alembic.operations import ops

from registry.database.tables import metadata

FILE = Path(__file__).parents[2] / "registry" / "database" / "migrations" / "versions" / "0001_begin.py"

_HEAD = '''"""The first schema: every table with its keys, checks and indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)
'''
_SHORTER = {
    r"sa\.BigInteger\(\)\.with_variant\(sa\.Integer\(\), 'sqlite'\)": "_KEY",
    r"sa\.DateTime\(timezone=True\)": "_MOMENT",
    r"op\.f\(('[^']*')\)": r"\1",
    r", unique=False\)": ")",
    r", unique=False, ": ", ",
}


def _rendered(kind: str, item: Any, _: AutogenContext) -> str | bool:
    """What would be rendered for SQLite alone, or in a type of SQLModel's own."""
    if kind == "type" and type(item).__module__.startswith("sqlmodel"):
        return "sa.String()"
    if kind == "server_default" and isinstance(getattr(item, "arg", None), sa.sql.elements.False_):
        return "sa.false()"
    return False


def _operations() -> list[ops.MigrateOperation]:
    """What makes the declared tables in an empty database, in an order in which it can be done."""
    with sa.create_engine("sqlite://").connect() as connection:
        context = MigrationContext.configure(connection)
        upgrade = produce_migrations(context, metadata).upgrade_ops
        assert upgrade is not None
        return list(upgrade.ops)


def _code(operations: list[ops.MigrateOperation], context: MigrationContext) -> str:
    text = render_python_code(ops.UpgradeOps(operations), render_item=_rendered, migration_context=context)
    kept = [line for line in text.splitlines() if not line.strip().startswith("#")]
    found = "\n".join(kept)
    for pattern, shorter in _SHORTER.items():
        found = re.sub(pattern, shorter, found)
    return found


def first_migration() -> str:
    """The migration's source: one function a table."""
    groups: dict[str, list[ops.MigrateOperation]] = {}
    for operation in _operations():
        table = operation.table_name  # type: ignore[attr-defined]
        groups.setdefault(str(table), []).append(operation)
    with sa.create_engine("sqlite://").connect() as connection:
        context = MigrationContext.configure(connection)
        functions = [
            f"def _create_{table}() -> None:\n{_code(operations, context)}\n"
            for table, operations in groups.items()
        ]
    calls = "\n".join(f"    _create_{table}()" for table in groups)
    drops = "\n".join(f"    op.drop_table({table!r})" for table in reversed(groups))
    upgrade = f"def upgrade() -> None:\n{calls}\n"
    downgrade = f"def downgrade() -> None:\n{drops}\n"
    return _formatted("\n\n".join([_HEAD, upgrade, downgrade, *functions]))


def _formatted(source: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    FILE.write_text(first_migration())
