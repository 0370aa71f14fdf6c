"""Content and values: what was stored, and the nodes and edges of lineage."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.content.manifest import Manifest
from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.errors import ContentDamaged, KindMismatch, NotFound
from registry.references import Reference
from registry.reports import Report
from registry.store import rows
from registry.store.session import Session, to_json
from registry.values import Parent, Role

_PUT_CHUNK = sql("""
    INSERT INTO chunk (key, size, state) VALUES (:key, :size, 'present')
    ON CONFLICT (key) DO UPDATE SET state = 'present' WHERE chunk.state = 'condemned'
""")
_PUT_CONTENT = sql("""
    INSERT INTO content (digest, size, files, manifest) VALUES (:digest, :size, :files, :manifest)
    ON CONFLICT (digest) DO NOTHING
""")
_PUT_CONTENT_CHUNK = sql("""
    INSERT INTO content_chunk (digest, chunk) VALUES (:digest, :chunk) ON CONFLICT DO NOTHING
""")
_MANIFEST = sql("SELECT manifest FROM content WHERE digest = :digest")
_PRESENT = sql("SELECT state FROM chunk WHERE key = :key")
_PUT_VALUE = sql("""
    INSERT INTO value (id, kind, digest, run, metadata_json, created_at, created_by)
    VALUES (:id, :kind, :digest, :run, :metadata, :now, :actor)
""")
_VALUE = sql("SELECT kind, digest FROM value WHERE id = :id")
_SAME_VALUE = sql(
    "SELECT id FROM value WHERE kind = :kind AND digest = :digest ORDER BY created_at, id LIMIT 1"
)
_PUT_EDGE = sql(
    "INSERT INTO edge (child, parent, role) VALUES (:child, :parent, :role) ON CONFLICT DO NOTHING"
)

# What may stand in a role. Roles that are not named here take any kind.
_KINDS_OF_ROLE = {
    Role.BASE: {"model"},
    Role.DATA: {"dataset"},
    Role.HELD_OUT: {"dataset"},
    Role.SUBJECT: {"adapter", "model"},
    Role.CODE: {"bundle"},
}


@dataclass(frozen=True)
class StoredFiles:
    """Files whose chunks are all in the blob store, but which nothing in the database names yet."""

    kind: str
    manifest: Manifest
    notices: tuple[str, ...] = ()
    report: Report | None = None  # what a report says, read while it was uploaded
    bytes_sent: int = 0

    @property
    def digest(self) -> str:
        return self.manifest.digest


@dataclass(frozen=True, slots=True)
class FoundParent:
    """A parent that exists."""

    value: str
    kind: str
    digest: str
    role: Role


def manifest_of(reader: Transaction, digest: str) -> Manifest:
    """Raises `NotFound` where nothing with that digest was published."""
    row = reader.first(_MANIFEST, digest=digest)
    if row is None:
        raise NotFound(f"There is no content '{digest[:80]}'.", remedy="See 'podium list'.")
    return Manifest.from_json(row[0])


def put_content(transaction: Transaction, manifest: Manifest) -> None:
    """Make a content readable. Its chunks must be in the store; condemned ones are taken back.

    Raises:
        ContentDamaged: collection is deleting a chunk at this moment.
    """
    chunks = sorted(manifest.chunks().values(), key=lambda chunk: chunk.key)
    transaction.execute_many(_PUT_CHUNK, [{"key": c.key, "size": c.size} for c in chunks])
    for chunk in chunks:
        if transaction.one(_PRESENT, key=chunk.key)[0] != "present":
            raise ContentDamaged(
                f"Chunk {chunk.key} is being collected as garbage at this moment.", remedy="Push again."
            )
    transaction.execute(
        _PUT_CONTENT,
        digest=manifest.digest,
        size=manifest.size,
        files=len(manifest.files),
        manifest=manifest.to_json(),
    )
    transaction.execute_many(
        _PUT_CONTENT_CHUNK, [{"digest": manifest.digest, "chunk": chunk.key} for chunk in chunks]
    )


def find_parents(reader: Transaction, parents: Sequence[Parent]) -> list[FoundParent]:
    """Look the parents up.

    Raises:
        NotFound: there is no such version or value.
        KindMismatch: it cannot be what the role says.
    """
    return [_find_parent(reader, parent) for parent in parents]


def _find_parent(reader: Transaction, parent: Parent) -> FoundParent:
    by_id = reader.first(_VALUE, id=parent.reference)
    if by_id is not None:
        found = FoundParent(parent.reference, by_id[0], by_id[1], parent.role)
    else:
        row = rows.require(reader, Reference.parse(parent.reference).require_explicit("derive from"))
        found = FoundParent(row[10], row[4], row[5], parent.role)
    allowed = _KINDS_OF_ROLE.get(parent.role)
    if allowed and found.kind not in allowed:
        raise KindMismatch(
            f"{parent.reference} is of kind {found.kind} and cannot be the {parent.role.value} of something.",
            remedy=f"Name a version of kind {' or '.join(sorted(allowed))}.",
        )
    return found


def put_value(
    transaction: Transaction,
    session: Session,
    files: StoredFiles,
    parents: Sequence[FoundParent],
    *,
    run: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Record where content came from; the id of the new value."""
    put_content(transaction, files.manifest)
    value = uuid.uuid4().hex
    transaction.execute(
        _PUT_VALUE,
        id=value,
        kind=files.kind,
        digest=files.digest,
        run=run,
        metadata=to_json(dict(metadata or {})),
        now=session.now(),
        actor=session.origin.actor,
    )
    edges = [{"child": value, "parent": p.value, "role": p.role.value} for p in parents]
    transaction.execute_many(_PUT_EDGE, edges)
    return value


def value_for(transaction: Transaction, session: Session, files: StoredFiles) -> str:
    """The oldest value with this content; a new one where there is none. For code, which runs share."""
    there = transaction.first(_SAME_VALUE, kind=files.kind, digest=files.digest)
    return str(there[0]) if there is not None else put_value(transaction, session, files, [])
