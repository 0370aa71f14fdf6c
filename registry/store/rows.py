"""Reading artifacts and versions: the statements that every facet needs, and what their rows mean."""

from __future__ import annotations

import json
from collections.abc import Sequence

from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.errors import AliasNotFound, ArtifactNotFound, VersionNotFound
from registry.references import Reference
from registry.suggesting import did_you_mean
from registry.values import Version

_COLUMNS = """
    version.id, artifact.id, artifact.name, version.number, value.kind, version.digest,
    content.size, content.files, version.created_at, version.created_by, version.value,
    value.run, value.metadata_json
"""
_FROM = """
    FROM version JOIN artifact ON artifact.id = version.artifact_id
    JOIN value ON value.id = version.value JOIN content ON content.digest = version.digest
"""
_BY_NUMBER = sql(f"""
    SELECT {_COLUMNS} {_FROM}
    WHERE artifact.name = :name AND version.number = :number AND version.deleted_at IS NULL
""")
_BY_DIGEST = sql(f"""
    SELECT {_COLUMNS} {_FROM}
    WHERE artifact.name = :name AND version.digest = :digest AND version.deleted_at IS NULL
""")
_BY_ALIAS = sql(f"""
    SELECT {_COLUMNS} FROM artifact
    JOIN alias ON alias.artifact_id = artifact.id AND alias.name = :alias
    JOIN version ON version.id = alias.version_id
    JOIN value ON value.id = version.value JOIN content ON content.digest = version.digest
    WHERE artifact.name = :name
""")
_NEWEST = sql(f"""
    SELECT {_COLUMNS} {_FROM}
    WHERE artifact.name = :name AND version.deleted_at IS NULL ORDER BY version.number DESC LIMIT 1
""")
_PAGE = sql(f"""
    SELECT {_COLUMNS} {_FROM}
    WHERE artifact.name = :name AND version.deleted_at IS NULL AND version.number < :before
    ORDER BY version.number DESC LIMIT :limit
""")
_BY_ID = sql(f"SELECT {_COLUMNS} {_FROM} WHERE version.id = :id AND version.deleted_at IS NULL")
_OF_VALUE = sql(f"""
    SELECT {_COLUMNS} {_FROM} WHERE version.value = :value AND version.deleted_at IS NULL ORDER BY version.id
""")
_OF_DIGEST = sql(f"""
    SELECT {_COLUMNS} {_FROM}
    WHERE version.digest = :digest AND version.deleted_at IS NULL ORDER BY version.id
""")
_ALIASES = sql("SELECT name FROM alias WHERE artifact_id = :artifact AND version_id = :version ORDER BY name")
_ALIASES_OF = sql("""
    SELECT alias.name FROM alias JOIN artifact ON artifact.id = alias.artifact_id
    WHERE artifact.name = :name ORDER BY alias.name
""")
_NAMES = sql("SELECT name FROM artifact ORDER BY id DESC LIMIT 1000")  # among them is what was meant
_TAGS = sql("SELECT key, value FROM tag WHERE version_id = :version ORDER BY key")
_ARTIFACT = sql("SELECT id, kind, last_number FROM artifact WHERE name = :name")
_LOCK_ARTIFACT = sql("SELECT id, kind, last_number FROM artifact WHERE name = :name {lock}")


def find(reader: Transaction, reference: Reference) -> Row | None:
    """The row of the version that a reference names; None if there is none."""
    if reference.version is not None:
        return reader.first(_BY_NUMBER, name=reference.name, number=reference.version)
    if reference.digest is not None:
        return reader.first(_BY_DIGEST, name=reference.name, digest=reference.digest)
    if reference.alias is not None:
        return reader.first(_BY_ALIAS, name=reference.name, alias=reference.alias)
    return reader.first(_NEWEST, name=reference.name)


def require(reader: Transaction, reference: Reference) -> Row:
    """The row of the version that a reference names.

    Raises:
        ArtifactNotFound, VersionNotFound, AliasNotFound.
    """
    row = find(reader, reference)
    if row is not None:
        return row
    require_artifact(reader, reference.name)
    if reference.alias is not None:
        otherwise = (
            f"See 'podium show {reference.name}', "
            f"or make it: podium promote {reference.name}:v1 {reference.alias}"
        )
        raise AliasNotFound(
            f"'{reference.name}' has no alias '{reference.alias}'.",
            remedy=did_you_mean(reference.alias, aliases_of(reader, reference.name), otherwise),
        )
    raise VersionNotFound(
        f"There is no version '{reference}'.",
        remedy=f"See 'podium list {reference.name}' for those there are.",
    )


def require_id(reader: Transaction, version: int) -> Row:
    """The row of a version by its key, as history names it.

    Raises:
        VersionNotFound: it was deleted since.
    """
    row = reader.first(_BY_ID, id=version)
    if row is None:
        raise VersionNotFound(
            "The version to go back to has been deleted.", remedy="Name another one with --to."
        )
    return row


def require_artifact(reader: Transaction, name: str, *, lock: bool = False) -> Row:
    """(id, kind, last number) of an artifact; with ``lock``, nobody else changes it until the commit.

    Raises:
        ArtifactNotFound.
    """
    row = reader.first(_LOCK_ARTIFACT if lock else _ARTIFACT, name=name)
    if row is None:
        names = [each for (each,) in reader.all(_NAMES)]
        raise ArtifactNotFound(
            f"There is no artifact '{name}'.",
            remedy=did_you_mean(name, names, "See 'podium list' for those there are."),
        )
    return row


def aliases_of(reader: Transaction, name: str) -> list[str]:
    """The names of an artifact's aliases."""
    return [alias for (alias,) in reader.all(_ALIASES_OF, name=name)]


def page(reader: Transaction, name: str, *, limit: int, before: int | None) -> list[Row]:
    return reader.all(_PAGE, name=name, limit=limit, before=before if before is not None else 2**31 - 1)


def naming_value(reader: Transaction, value: str) -> list[Row]:
    """Versions that name a value."""
    return reader.all(_OF_VALUE, value=value)


def with_digest(reader: Transaction, digest: str) -> list[Row]:
    """Versions of any artifact with this content."""
    return reader.all(_OF_DIGEST, digest=digest)


def to_version(reader: Transaction, row: Row) -> Version:
    """The value that leaves the registry, from a row of this file's statements."""
    (version, artifact, name, number, kind, digest, size, files, at, by, value, run, metadata) = row
    return Version(
        artifact=name,
        number=number,
        kind=kind,
        digest=digest,
        size=size,
        files=files,
        created_at=to_time(at),
        created_by=by,
        value=value,
        run=run,
        aliases=tuple(a for (a,) in reader.all(_ALIASES, artifact=artifact, version=version)),
        tags=dict(reader.all(_TAGS, version=version)),
        metadata=json.loads(metadata),
    )


def to_versions(reader: Transaction, rows: Sequence[Row]) -> list[Version]:
    return [to_version(reader, row) for row in rows]
