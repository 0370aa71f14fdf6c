"""Checkpoints of runs."""

from alembic import op

from registry.database.tables import metadata

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that begins today has the table from the first migration, which creates all that there are.
    metadata.tables["checkpoint"].create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    op.drop_table("checkpoint")
