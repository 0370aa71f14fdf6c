"""Steps of pipelines: runs with a place in another run."""

import sqlalchemy as sa
from alembic import op

from registry.database.tables import metadata

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    there = {column["name"] for column in sa.inspect(connection).get_columns("run")}
    table = metadata.tables["run"]
    added = [column for column in table.columns if column.name not in there]
    if not added:
        return  # a database that begins today has them from the first migration
    for column in added:
        # SQLite cannot add a column that refers to another table's, or one that must have a value.
        op.add_column("run", sa.Column(column.name, column.type, server_default=column.server_default))
    op.execute("UPDATE run SET root = id, turn = queued_at, depth = 0")
    op.drop_index("run_queue", "run")
    indexes = {index["name"] for index in sa.inspect(connection).get_indexes("run")}
    for index in table.indexes:
        if index.name not in indexes:
            index.create(connection)


def downgrade() -> None:
    raise NotImplementedError("Steps cannot be told apart from runs in the earlier schema.")
