"""Making a value a version: the transaction that makes content visible under a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from registry.crashpoints import reached
from registry.database.engine import Row, Transaction
from registry.database.statements import sql
from registry.errors import InvalidInput, KindMismatch
from registry.events import EventType, VersionPublished
from registry.references import Reference
from registry.store import reports, rows
from registry.store.session import Session
from registry.store.values import FoundParent, StoredFiles, find_parents, put_value
from registry.values import Parent, Version

_ARTIFACT_KIND = sql("SELECT kind FROM artifact WHERE name = :name")
_PUT_ARTIFACT = sql("""
    INSERT INTO artifact (name, kind, last_number, version_count, bytes_total, created_at)
    VALUES (:name, :kind, 0, 0, 0, :now) ON CONFLICT (name) DO NOTHING
""")
_NEXT_NUMBER = sql("""
    UPDATE artifact
    SET last_number = last_number + 1, version_count = version_count + 1, bytes_total = bytes_total + :size
    WHERE id = :artifact RETURNING last_number
""")
_PUT_VERSION = sql("""
    INSERT INTO version (artifact_id, number, digest, value, created_at, created_by)
    VALUES (:artifact, :number, :digest, :value, :now, :actor)
""")
_SAME_CONTENT = sql("""
    SELECT number FROM version WHERE artifact_id = :artifact AND digest = :digest AND deleted_at IS NULL
""")
_VALUE = sql("""
    SELECT value.kind, value.digest, content.size, value.run
    FROM value JOIN content ON content.digest = value.digest WHERE value.id = :value
""")


def kind_for(reader: Transaction, name: str, kind: str | None) -> str:
    """The kind that content published under ``name`` has.

    Raises:
        KindMismatch: the artifact is of another kind.
        InvalidInput: the artifact is new and no kind was given.
    """
    row = reader.first(_ARTIFACT_KIND, name=name)
    if row is None and kind is None:
        raise InvalidInput(
            f"There is no artifact '{name}' yet, so its kind is not known.", remedy="Say it with --kind."
        )
    if row is not None and kind is not None and row[0] != kind:
        raise KindMismatch(
            f"'{name}' holds versions of kind {row[0]}, not {kind}.", remedy="Publish under another name."
        )
    return str(row[0] if row is not None else kind)


def publish_files(
    transaction: Transaction,
    session: Session,
    name: str,
    files: StoredFiles,
    parents: Sequence[Parent],
    *,
    run: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> tuple[Version, bool]:
    """Make stored files a version of ``name``; False where that content was one already."""
    artifact = _require_artifact(transaction, session, name, files.kind)
    found = find_parents(transaction, parents)
    if files.report is not None:
        reports.check_judged(transaction, files.report, found)
    existing = transaction.first(_SAME_CONTENT, artifact=artifact[0], digest=files.digest)
    if existing is not None:
        return _version(transaction, name, existing[0]), False
    value = put_value(transaction, session, files, found, run=run, metadata=metadata)
    reached("publish.recorded")
    return _name(transaction, session, artifact, name, value, files), True


def store_value(
    transaction: Transaction,
    session: Session,
    files: StoredFiles,
    parents: Sequence[FoundParent],
    *,
    run: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Record stored files as a value that nobody has named; its id. A report's scores become evidence."""
    if files.report is not None:
        reports.check_judged(transaction, files.report, parents)
    value = put_value(transaction, session, files, parents, run=run, metadata=metadata)
    if files.report is not None:
        evaluator = reports.evaluator_of(transaction, session, run)
        reports.record_evaluation(transaction, session, files.report, value, None, evaluator)
    return value


def name_value(transaction: Transaction, session: Session, name: str, value: str) -> tuple[Version, bool]:
    """Make an existing value a version of ``name``; False where its content was one already."""
    kind, digest, size, run = transaction.one(_VALUE, value=value)
    artifact = _require_artifact(transaction, session, name, kind_for(transaction, name, kind))
    existing = transaction.first(_SAME_CONTENT, artifact=artifact[0], digest=digest)
    if existing is not None:
        return _version(transaction, name, existing[0]), False
    return _put_version(transaction, session, artifact, name, value, kind, digest, size, run), True


def _require_artifact(transaction: Transaction, session: Session, name: str, kind: str) -> Row:
    """The artifact's row, made if need be, and locked: numbers are given out one after the other."""
    transaction.execute(_PUT_ARTIFACT, name=name, kind=kind, now=session.now())
    kind_for(transaction, name, kind)
    return rows.require_artifact(transaction, name, lock=True)


def _name(
    transaction: Transaction, session: Session, artifact: Row, name: str, value: str, files: StoredFiles
) -> Version:
    kind, digest, size, run = transaction.one(_VALUE, value=value)
    version = _put_version(transaction, session, artifact, name, value, kind, digest, size, run)
    if files.report is not None:
        evaluator = reports.evaluator_of(transaction, session, run)
        reports.record_evaluation(transaction, session, files.report, value, version.ref, evaluator)
    return version


def _put_version(
    transaction: Transaction,
    session: Session,
    artifact: Row,
    name: str,
    value: str,
    kind: str,
    digest: str,
    size: int,
    run: str | None,
) -> Version:
    (number,) = transaction.one(_NEXT_NUMBER, artifact=artifact[0], size=size)
    transaction.execute(
        _PUT_VERSION,
        artifact=artifact[0],
        number=number,
        digest=digest,
        value=value,
        now=session.now(),
        actor=session.origin.actor,
    )
    data = VersionPublished(artifact=name, version=number, kind=kind, digest=digest, size=size, run=run)
    subject = f"{name}:v{number}"
    session.emit(transaction, EventType.VERSION_PUBLISHED, data, subject=subject, key=name)
    return _version(transaction, name, number)


def _version(reader: Transaction, name: str, number: int) -> Version:
    return rows.to_version(reader, rows.require(reader, Reference(name, version=number)))
