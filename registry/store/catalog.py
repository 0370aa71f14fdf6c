"""Artifacts and versions: publish, resolve, read, list, tag, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from registry.content.diff import ContentDiff, diff
from registry.content.manifest import Manifest
from registry.content.progress import Progress
from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.errors import InvalidInput, VersionInUse
from registry.references import Reference, check_name
from registry.store import publishing, rows, values
from registry.store.files import FileStore
from registry.store.session import Session, check_text
from registry.store.usage import deployments_using, gates_judging_on
from registry.values import Artifact, Parent, Published, Stored, Version

_ARTIFACTS = sql("""
    SELECT id, name, kind, created_at, version_count, bytes_total,
           (SELECT MAX(number) FROM version WHERE artifact_id = artifact.id AND deleted_at IS NULL)
    FROM artifact WHERE name > :after AND name LIKE :pattern ESCAPE '!' ORDER BY name LIMIT :limit
""")
_ALIASES = sql("""
    SELECT alias.name, version.number FROM alias JOIN version ON version.id = alias.version_id
    WHERE alias.artifact_id = :artifact ORDER BY alias.name
""")
_PUT_TAG = sql("""
    INSERT INTO tag (version_id, key, value) VALUES (:version, :key, :value)
    ON CONFLICT (version_id, key) DO UPDATE SET value = excluded.value
""")
_REMOVE_TAG = sql("DELETE FROM tag WHERE version_id = :version AND key = :key")
_HELD_BY = sql("SELECT name FROM alias WHERE version_id = :version ORDER BY name")
_HELD_SINCE = sql("""
    SELECT promotion.alias, MAX(promotion.at) FROM promotion
    WHERE promotion.to_version_id = :version OR promotion.from_version_id = :version
    GROUP BY promotion.alias ORDER BY promotion.alias
""")
_DELETE = sql("UPDATE version SET deleted_at = :now WHERE id = :version")
_COUNT_OUT = sql("""
    UPDATE artifact SET version_count = version_count - 1, bytes_total = bytes_total - :size
    WHERE id = :artifact
""")


class StoredCatalog:
    def __init__(self, session: Session, files: FileStore, rollback_window: timedelta) -> None:
        self._session = session
        self._files = files
        self._rollback_window = rollback_window

    def publish(
        self,
        name: str,
        path: Path,
        kind: str | None = None,
        *,
        parents: Sequence[Parent] = (),
        metadata: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Published:
        check_name(name)
        with self._session.reading() as reader:
            kind = publishing.kind_for(reader, name, kind)
            values.find_parents(reader, parents)  # nobody should wait for an upload to learn of a wrong name
        files = self._files.upload(path, kind, progress=progress)
        with self._session.writing() as transaction:
            version, created = publishing.publish_files(
                transaction, self._session, name, files, parents, metadata=metadata
            )
        return Published(version, created, files.manifest.size, files.bytes_sent, files.notices)

    def store(self, path: Path, kind: str, *, progress: Progress | None = None) -> Stored:
        files = self._files.upload(path, kind, progress=progress)
        with self._session.writing() as transaction:
            values.put_content(transaction, files.manifest)
        return Stored(kind, files.digest, files.manifest.size, files.bytes_sent, files.notices)

    def name(self, name: str, value: str) -> Published:
        check_name(name)
        with self._session.writing() as transaction:
            version, created = publishing.name_value(transaction, self._session, name, value)
        return Published(version, created)

    def resolve(self, reference: str) -> Version:
        parsed = Reference.parse(reference)
        with self._session.reading() as reader:
            return rows.to_version(reader, rows.require(reader, parsed))

    def manifest(self, digest: str) -> Manifest:
        return self._files.manifest(digest)

    def materialise(self, digest: str, destination: Path, *, progress: Progress | None = None) -> None:
        self._files.materialise(digest, destination, progress=progress)

    def pull(self, reference: str, destination: Path, *, progress: Progress | None = None) -> Version:
        version = self.resolve(reference)
        self._files.materialise(version.digest, destination, progress=progress)
        return version

    def read(self, digest: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._files.read(digest, path, start, length)

    def diff(self, before: str, after: str) -> ContentDiff:
        old, new = self.resolve(before).digest, self.resolve(after).digest
        return diff(
            self.manifest(old), self.manifest(new), self._files.tensors(old), self._files.tensors(new)
        )

    def artifacts(self, pattern: str = "*", *, limit: int = 50, after: str = "") -> list[Artifact]:
        with self._session.reading() as reader:
            found = reader.all(_ARTIFACTS, pattern=_like(pattern), limit=limit, after=after)
            return [_artifact(reader, row) for row in found]

    def versions(self, name: str, *, limit: int = 50, before: int | None = None) -> list[Version]:
        with self._session.reading() as reader:
            rows.require_artifact(reader, check_name(name))
            return rows.to_versions(reader, rows.page(reader, name, limit=limit, before=before))

    def tag(self, reference: str, tags: Mapping[str, str | None]) -> Version:
        parsed = Reference.parse(reference).require_explicit("tag")
        for key, value in tags.items():
            _check_tag(key)
            check_text(value or "", f"The tag '{key}'")
        with self._session.writing() as transaction:
            row = rows.require(transaction, parsed)
            for key, value in tags.items():
                if value is None:
                    transaction.execute(_REMOVE_TAG, version=row[0], key=key)
                else:
                    transaction.execute(_PUT_TAG, version=row[0], key=key, value=value)
            return rows.to_version(transaction, row)

    def delete(self, reference: str) -> Version:
        parsed = Reference.parse(reference).require_explicit("delete")
        with self._session.writing() as transaction:
            rows.require_artifact(transaction, parsed.name, lock=True)  # no alias moves to it meanwhile
            row = rows.require(transaction, parsed)
            version = rows.to_version(transaction, row)
            self._refuse_in_use(transaction, row[0], version)
            transaction.execute(_DELETE, version=row[0], now=self._session.now())
            transaction.execute(_COUNT_OUT, artifact=row[1], size=version.size)
            return version

    def _refuse_in_use(self, reader: Transaction, key: int, version: Version) -> None:
        for (alias,) in reader.all(_HELD_BY, version=key):
            raise _in_use(version, f"'{version.artifact}:{alias}' is at it", "Move the alias first.")
        for user in deployments_using(reader, version.digest):
            raise _in_use(
                version, f"the deployment '{user}' serves it", "Deploy it without this version first."
            )
        for gate in gates_judging_on(reader, version):
            raise _in_use(version, f"the gate '{gate}' judges on it", "Deploy it without this version first.")
        since = self._session.now() - self._rollback_window
        for alias, at in reader.all(_HELD_SINCE, version=key):
            if to_time(at) > since:
                days = self._rollback_window.days
                raise _in_use(
                    version,
                    f"'{version.artifact}:{alias}' was at it within the last {days} days "
                    "and may be rolled back to it",
                    "Wait, or set PODIUM_ROLLBACK_WINDOW to fewer days.",
                )


def _in_use(version: Version, reason: str, remedy: str) -> VersionInUse:
    return VersionInUse(f"{version.ref} cannot be deleted: {reason}.", remedy=remedy)


def _artifact(reader: Transaction, row: Row) -> Artifact:
    (id, name, kind, created_at, count, size, newest) = row
    aliases: dict[str, int] = dict(reader.all(_ALIASES, artifact=id))
    return Artifact(name, kind, count, newest, aliases, to_time(created_at), size)


def _like(pattern: str) -> str:
    """A glob as a LIKE pattern; character classes are not offered."""
    escaped = "".join(f"!{c}" if c in "!%_" else c for c in pattern)
    return escaped.replace("*", "%").replace("?", "_")


def _check_tag(key: str) -> None:
    if not key or len(key) > 100 or not key.isprintable():
        raise InvalidInput(
            "A tag's name must be 1 to 100 printable characters.", remedy="Choose another name."
        )
