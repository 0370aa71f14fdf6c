"""The registry beside MLflow's: both called directly, on SQLite with a full sync at each commit.

MLflow leaves SQLite's journal as it is made, a rollback journal. What it would be in WAL mode, as ours is,
stands beside it: as durable, and sooner done.

And the registry beside itself, with a hundred times as many versions.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from registry import Registry, Settings, connect
from tests.benchmarks.measuring import Aim, Row, compare, interleaved, median_ms, side_by_side
from tests.common.content import write_adapter

_FEW, _MANY = 1_000, 100_000


@contextmanager
def _podium(folder: Path) -> Iterator[Registry]:
    """A registry with two versions of ``router``."""
    registry = connect(Settings(home=folder / "home", actor="bench"))
    for seed in (1, 2):
        registry.catalog.publish("router", write_adapter(folder / f"v{seed}", seed=seed), "adapter")
    registry.promotions.promote("router:v1", "production")
    try:
        yield registry
    finally:
        registry.close()


def _mlflow(folder: Path, *, wal: bool) -> Any:
    """MLflow's own store, without its server, with the same two versions."""
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    database = folder / "mlflow.db"
    store: Any = SqlAlchemyStore(f"sqlite:///{database}")  # type: ignore[no-untyped-call]
    if wal:
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # kept in the file; synchronous is FULL unless set
        connection.close()
    store.create_registered_model("router")
    for seed in (1, 2):
        store.create_model_version("router", source=f"{folder}/v{seed}", run_id=None)
    store.set_registered_model_alias("router", "production", "1")
    return store


def _in_turn(call: Callable[[str], object]) -> Callable[[], object]:
    """``call`` with the versions 2, 1, 2, ...: each call moves the alias."""
    versions = cycle("21")
    return lambda: call(next(versions))


def set_alias() -> Iterator[Row]:
    """Ours moves it behind gates, by compare-and-swap, with history and event in the same transaction."""
    yield _set_alias_beside("MLflow, direct store", wal=False)
    yield _set_alias_beside("MLflow switched to WAL", wal=True)


def _set_alias_beside(peer: str, *, wal: bool) -> Row:
    with TemporaryDirectory() as name, _podium(Path(name)) as registry:
        store = _mlflow(Path(name), wal=wal)
        row = side_by_side(
            f"set an alias ({peer})",
            _in_turn(lambda version: registry.promotions.promote(f"router:v{version}", "production")),
            _in_turn(lambda version: store.set_registered_model_alias("router", "production", version)),
            rounds=300,
            aim=Aim.AT_LEAST,
            factor=5,
        )
        store.engine.dispose()
    return row


def resolve_alias() -> Iterator[Row]:
    with TemporaryDirectory() as name, _podium(Path(name)) as registry:
        store = _mlflow(Path(name), wal=False)
        yield side_by_side(
            "resolve an alias (MLflow, direct store)",
            lambda: registry.catalog.resolve("router:production"),
            lambda: store.get_model_version_by_alias("router", "production"),
            rounds=500,
            aim=Aim.AT_LEAST,
            factor=10,
        )
        store.engine.dispose()


_OURS = "import registry, registry.connection, registry.store.stored; registry.connect"
_FIND = """
import importlib.metadata, sys
before = set(sys.modules)
{ours}
tops = {{name.partition(".")[0] for name in sys.modules}} - {{name.partition(".")[0] for name in before}}
owners = importlib.metadata.packages_distributions()
print(*sorted(top for top in tops if top in owners and owners[top] != ["podium"]))
"""


def import_registry() -> Iterator[Row]:
    """All that `connect` loads, against the libraries that this loads."""
    libraries = _python(_FIND.format(ours=_OURS)).split()
    theirs = f"import {', '.join(libraries)}"
    seconds = interleaved({"ours": lambda: _python(_OURS), "peer": lambda: _python(theirs)}, rounds=10)
    name = f"import registry, ready to connect (import {', '.join(libraries)})"
    yield compare(name, median_ms(seconds["ours"]), median_ms(seconds["peer"]), "ms", Aim.AT_MOST, 1.5)
    bare = interleaved({"ours": lambda: _python("import registry"), "peer": lambda: _python("")}, rounds=10)
    name = "import registry (an interpreter that imports nothing)"
    yield compare(name, median_ms(bare["ours"]), median_ms(bare["peer"]), "ms", Aim.AT_MOST, 1.5)


def _python(statement: str) -> str:
    # Libraries come with their bytecode; ours is written by the first round, unless that is forbidden.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-c", statement]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", env=environment)
    return done.stdout


def scale() -> Iterator[Row]:
    """What reads a registry takes as long with 100,000 versions of an artifact as with 1,000."""
    with (
        TemporaryDirectory() as name,
        _podium(Path(name) / "few") as few,
        _podium(Path(name) / "many") as many,
    ):
        _fill(few, _FEW)
        _fill(many, _MANY)
        works: dict[str, Callable[[Registry], object]] = {
            "resolve": lambda registry: registry.catalog.resolve("router:v500"),
            "list a page": lambda registry: registry.catalog.versions("router", limit=50),
            "list a page from the middle": lambda registry: registry.catalog.versions("router", before=500),
            "lineage, 20 deep": lambda registry: registry.lineage.walk("router:v500", depth=20),
            "promote": _promote,
        }
        for title, work in works.items():
            yield _at_scale(title, work, few, many)


def _promote(registry: Registry) -> object:
    at = registry.promotions.get("router", "production").version
    return registry.promotions.promote(f"router:v{3 - at}", "production")


def _at_scale(title: str, work: Callable[[Registry], object], few: Registry, many: Registry) -> Row:
    seconds = interleaved({"ours": lambda: work(many), "peer": lambda: work(few)}, rounds=200)
    name = f"{title} of {_MANY:,} versions (of {_FEW:,})"
    return compare(name, median_ms(seconds["ours"]), median_ms(seconds["peer"]), "ms", Aim.AT_MOST, 1.5)


_CLONE = tuple(
    f"""WITH RECURSIVE number (n, digest, copy) AS (
            SELECT 3, printf('sha256:%064x', 3), 'copy-3'
            UNION ALL
            SELECT n + 1, printf('sha256:%064x', n + 1), printf('copy-%d', n + 1) FROM number WHERE n < :count
        )
        {statement}"""
    for statement in (
        """INSERT INTO content (digest, size, files, manifest)
        SELECT number.digest, size, files, manifest FROM number, content WHERE content.digest = :digest""",
        """INSERT INTO value (id, kind, digest, run, metadata_json, created_at, created_by)
        SELECT copy, kind, number.digest, run, metadata_json, created_at, created_by
        FROM number, value WHERE value.id = :value""",
        """INSERT INTO version (artifact_id, number, digest, value, created_at, created_by)
        SELECT artifact_id, n, number.digest, copy, created_at, created_by
        FROM number, version WHERE version.value = :value""",
        """INSERT INTO edge (child, parent, role)
        SELECT copy, iif(n = 3, :value, printf('copy-%d', n - 1)), 'parent' FROM number""",
        "UPDATE artifact SET last_number = :count, version_count = :count WHERE name = 'router'",
    )
)


def _fill(registry: Registry, count: int) -> None:
    """Make ``router`` have ``count`` versions, each made from the one before, by copying rows of its second.

    Publishing them would take minutes and leave the same rows.
    """
    second = registry.catalog.resolve("router:v2")
    path = registry.settings.home / "podium.db"
    with sqlite3.connect(path) as connection:
        for statement in _CLONE:
            connection.execute(statement, {"count": count, "digest": second.digest, "value": second.value})
    connection.close()
    newest = registry.catalog.resolve("router")
    assert newest.number == count, newest
