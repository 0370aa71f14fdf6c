"""The database that worlds begin with, made once a test run by the real registry."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from registry.database.engine import Database
from registry.database.schema import prepare
from tests.common.content import write_dataset
from tests.simulation.blobs import SharedStore
from tests.simulation.process import Process
from tests.simulation.storage import SharedRegistry, image_of
from tests.simulation.world import Beginning, World

ARTIFACTS = ("ant", "bee")
VERSIONS = 3


@cache
def beginning() -> Beginning:
    """A few artifacts with a few versions each; no alias yet."""
    world = World(_empty())
    try:
        _publish(world)
        return Beginning(image_of(world.connection), dict(world.chunks), world.database_id)
    finally:
        world.loop.close()


def _publish(world: World) -> None:
    process = Process(world, "maker")
    registry = SharedRegistry.of(process, SharedStore(process), "user:maker")
    with tempfile.TemporaryDirectory() as folder:
        for name in ARTIFACTS:
            for number in range(VERSIONS):
                path = Path(folder, name, str(number))
                write_dataset(path, {"data.txt": f"{name} {number}".encode()})
                registry.catalog.publish(name, path, "dataset")


def _empty() -> Beginning:
    """A database with the schema and nothing in it."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/podium.db")
        database_id = prepare(database)
        with database.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("PRAGMA journal_mode=DELETE")  # an image in memory cannot have a log beside it
            image = raw.serialize()
        database.close()
    return Beginning(image, {}, database_id)
