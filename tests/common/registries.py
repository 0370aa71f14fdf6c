"""Registries for tests, over SQLite with a folder and over PostgreSQL with S3, and what to fill them with.

A `Place` is where a registry lies; it can be opened any number of times, as several processes would. A
database is migrated once a test run and then copied (SQLite) or emptied (PostgreSQL) for each test, because a
migration takes longer than most tests.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from registry.database.engine import Database
from registry.database.schema import prepare
from registry.database.statements import sql
from registry.database.tables import metadata
from registry.protocol import Registry
from registry.remote.registry import RemoteRegistry
from registry.resources import Resources
from registry.runs import Claim, RunRequest
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from registry.values import Parent, Role, Version
from tests.common import content
from tests.common.postgres import PostgresServer
from tests.common.services import Bucket

_FORGET_IDENTITY = sql("DELETE FROM podium")
_END_CONNECTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Place:
    """Where a test's registry lies."""

    settings: Settings
    variables: Mapping[str, str] = field(default_factory=dict)  # of the S3 server
    _opened: ExitStack = field(default_factory=ExitStack, repr=False)

    @property
    def is_sqlite(self) -> bool:
        return self.settings.url is None

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to use this registry."""
        found = {"PODIUM_HOME": str(self.settings.home), "PODIUM_ACTOR": "ada", **self.variables}
        if self.settings.url is not None:
            found["PODIUM_URL"] = self.settings.url.get_secret_value()
        if self.settings.blobs is not None:
            found["PODIUM_BLOBS"] = self.settings.blobs
        return found

    def open(self, actor: str = "user:ada", **changes: Any) -> StoredRegistry:
        """Open it once more, with connections of its own; ``changes`` are other settings."""
        settings = self.settings.model_copy(update=changes)
        registry = StoredRegistry.open(settings, actor=actor)
        self._opened.callback(registry.close)
        return registry

    def database(self) -> Database:
        """The bare database, for a test to look or meddle behind the registry's back."""
        return self._opened.enter_context(Database(self.settings.database_url))

    def close(self) -> None:
        """Close all that was opened."""
        self._opened.close()


@dataclass(frozen=True)
class ServedPlace(Place):
    """A registry behind a server: what is opened here has a token of an admin's, and no database."""

    url: str = ""
    token: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "PODIUM_URL": self.url, "PODIUM_TOKEN": self.token}

    def open(self, actor: str = "user:ada", **changes: Any) -> Any:
        client = {
            "url": SecretStr(self.url),
            "token": SecretStr(self.token),
            "home": self.settings.home / "client",
        }
        if "rollback_window" in changes:  # that is the server's to say
            return super().open(actor, **changes)
        settings = self.settings.model_copy(update={**client, **changes})
        registry = RemoteRegistry.open(settings, actor=actor)
        self._opened.callback(registry.close)
        return registry

    def beneath(self) -> StoredRegistry:
        """The registry that the server has."""
        return super().open()


def _blank(database: Database) -> None:
    """Migrate, and take the identity away again: each copy is a database of its own."""
    with database:
        prepare(database)
        with database.transaction() as transaction:
            transaction.execute(_FORGET_IDENTITY)


def sqlite_template(folder: Path) -> Path:
    """A migrated database file without an identity."""
    path = folder / "template.db"
    _blank(Database(f"sqlite:///{path}"))
    return path


def migrated_postgres(server: PostgresServer) -> str:
    """The address of a migrated database without an identity. `empty_postgres` makes it so again."""
    url = server.database()
    _blank(Database(url))
    return url


def empty_postgres(url: str) -> None:
    """Take everything out of a database, and end what is still connected to it.

    A fifth of the time that making another database takes.
    """
    import psycopg

    tables = ", ".join(f'"{name}"' for name in metadata.tables)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_END_CONNECTIONS)
        connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE".encode())


def sqlite_place(home: Path, template: Path) -> Place:
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(template, home / "podium.db")
    return Place(Settings(home=home, actor="ada"))


def server_place(home: Path, url: str, bucket: Bucket) -> Place:
    """Over a PostgreSQL database, and a part of a bucket that nobody else uses."""
    blobs = f"{bucket.url}/{uuid.uuid4().hex}"
    return Place(Settings(home=home, url=SecretStr(url), blobs=blobs, actor="ada"), bucket.environment)


class Maker:
    """Publishes small content into a registry; each call makes other content than the ones before."""

    def __init__(self, registry: Registry, scratch: Path) -> None:
        self.registry = registry
        self.scratch = scratch
        self.made = 0

    def _folder(self) -> Path:
        self.made += 1
        return self.scratch / f"content-{self.made}"

    def adapter(self, name: str = "support-bot", **options: Any) -> Version:
        folder = content.write_adapter(self._folder(), seed=self.made)
        return self.publish(name, folder, "adapter", **options)

    def model(self, name: str = "tiny", **options: Any) -> Version:
        tensors = {"model.embed_tokens.weight": ("BF16", (16, 8), self.made)}
        return self.publish(name, content.write_model(self._folder(), tensors), "model", **options)

    def dataset(self, name: str = "held-out", **options: Any) -> Version:
        lines = b'{"id": "1", "text": "%d"}\n' % self.made
        folder = content.write_dataset(self._folder(), {"examples.jsonl": lines})
        return self.publish(name, folder, "dataset", **options)

    def publish(
        self,
        name: str,
        folder: Path,
        kind: str,
        *,
        parents: Sequence[Parent] = (),
        by: Registry | None = None,
    ) -> Version:
        return (by or self.registry).catalog.publish(name, folder, kind, parents=parents).version

    def report(
        self,
        subject: Version,
        on: Version,
        value: float,
        *,
        evaluator: str | None = "evaluate",
        name: str = "scores",
        of: Version | None = None,
        stated_on: Version | None = None,
        **document: Any,
    ) -> Version:
        """A report of ``subject`` on a held-out set, made by a run of the task ``evaluator``; None: by hand.

        ``of`` and ``stated_on`` are what it is published for, where that is something else. ``document`` is
        what `write_report` takes.
        """
        folder = write_report(self._folder(), subject.digest, on.digest, value, **document)
        parents = [
            Parent((of or subject).ref, Role.SUBJECT),
            Parent((stated_on or on).ref, Role.HELD_OUT),
        ]
        by = running(self.registry, evaluator)[0] if evaluator else self.registry
        return self.publish(name, folder, "report", parents=parents, by=by)


def write_report(
    folder: Path,
    subject: str,
    dataset: str,
    value: float,
    *,
    metric: str = "accuracy",
    base: float | None = None,
    higher_is_better: bool = True,
    examples: Mapping[str, float] | None = None,
    base_examples: Mapping[str, float] | None = None,
) -> Path:
    """The folder of a report that gives the content ``subject`` the score ``value`` on ``dataset``."""
    folder.mkdir(parents=True, exist_ok=True)
    score = {"value": value, "base": base, "higher_is_better": higher_is_better, "n": len(examples or {})}
    document = {
        "schema": 1,
        "subject": {"digest": subject},
        "dataset": {"digest": dataset},
        "metrics": {metric: score},
    }
    (folder / "report.json").write_text(json.dumps(document))
    if examples is not None:
        (folder / "examples.jsonl").write_text(_lines(metric, examples, base_examples or {}))
    return folder


def _lines(metric: str, examples: Mapping[str, float], base: Mapping[str, float]) -> str:
    lines = []
    for example, score in examples.items():
        line: dict[str, Any] = {"id": example, metric: score}
        if example in base:
            line[f"base_{metric}"] = base[example]
        lines.append(json.dumps(line))
    return "\n".join(lines) + "\n"


def running(registry: Registry, task: str) -> tuple[Registry, Claim]:
    """A registry that acts as a run of ``task`` which a worker has just taken, and the worker's claim."""
    run = registry.runs.queue(RunRequest(task, resources=Resources(cpu=1)))
    room = Resources(cpu=64, memory="64Gi")
    (claim,) = registry.runs.claim("worker-1", free=room, total=room, only=run.id)
    return registry.acting(claim.origin), claim
