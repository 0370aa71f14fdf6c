"""Content, values, artifacts, versions and their lineage."""

from __future__ import annotations

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from registry.database.tables.columns import BigKey, Moment, key, refers_to, text, time


class ChunkRow(SQLModel, table=True):
    """A piece of content in the blob store. Collection condemns before it deletes; a publish may revive."""

    __tablename__ = "chunk"
    __table_args__ = (
        sa.CheckConstraint("state IN ('present', 'condemned', 'deleting')", name="chunk_state"),
    )

    key: str = Field(primary_key=True)  # sha256, hex
    size: int = Field(sa_type=sa.BigInteger)
    state: str = text(default="present")


class ContentRow(SQLModel, table=True):
    """What a digest stands for. Written once."""

    __tablename__ = "content"

    digest: str = Field(primary_key=True)
    size: int = Field(sa_type=sa.BigInteger)
    files: int
    manifest: str = text()  # JSON: files with their chunks


class ContentChunkRow(SQLModel, table=True):
    """Which chunks a content needs: the reachability rule of collection."""

    __tablename__ = "content_chunk"

    digest: str = Field(primary_key=True, foreign_key="content.digest")
    chunk: str = Field(primary_key=True, foreign_key="chunk.key", index=True)


class ValueRow(SQLModel, table=True):
    """Content with an origin: a node of lineage, named by a version or not."""

    __tablename__ = "value"

    id: str = Field(primary_key=True)
    kind: str
    digest: str = Field(foreign_key="content.digest", index=True)
    run: str | None = Field(default=None, index=True)
    metadata_json: str = text(default="{}")
    created_at: Moment = time()
    created_by: str


class EdgeRow(SQLModel, table=True):
    """``child`` was made from ``parent``."""

    __tablename__ = "edge"

    child: str = Field(primary_key=True, foreign_key="value.id")
    parent: str = Field(primary_key=True, foreign_key="value.id", index=True)
    role: str = Field(primary_key=True)


class ArtifactRow(SQLModel, table=True):
    __tablename__ = "artifact"

    id: int | None = key()
    name: str = Field(unique=True)
    kind: str
    last_number: int = 0  # numbers are never used again, also after a delete
    # Kept here, because a page of a list may not have to count what each artifact has.
    version_count: int = 0
    bytes_total: int = Field(default=0, sa_type=sa.BigInteger)
    created_at: Moment = time()


class VersionRow(SQLModel, table=True):
    """A deleted version keeps its row, so that history can still name it."""

    __tablename__ = "version"
    __table_args__ = (
        sa.UniqueConstraint("artifact_id", "number"),
        sa.Index(
            "version_content",
            "artifact_id",
            "digest",
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        ),
    )

    id: int | None = key()
    artifact_id: int = refers_to("artifact.id")
    number: int
    digest: str = Field(index=True)
    value: str = Field(foreign_key="value.id", index=True)
    created_at: Moment = time()
    created_by: str
    deleted_at: Moment | None = time(nullable=True)


class TagRow(SQLModel, table=True):
    __tablename__ = "tag"

    version_id: int = Field(sa_type=BigKey, foreign_key="version.id", primary_key=True)
    key: str = Field(primary_key=True)
    value: str = text()
