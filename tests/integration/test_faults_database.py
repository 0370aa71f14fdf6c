"""A database server that goes and comes back."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from registry.errors import DatabaseUnavailable
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from tests.common.postgres import PostgresServer
from tests.common.services import temporary_folder

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    folder = temporary_folder("postgres-away")
    server = PostgresServer(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


def test_connections_that_a_restart_has_ended_are_not_used_again_and_nothing_is_logged(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(home=tmp_path, url=SecretStr(server.database()), actor="ada")
    registry = StoredRegistry.open(settings)
    registry.events.position()
    server.stop()
    with caplog.at_level(logging.WARNING), pytest.raises(DatabaseUnavailable):
        registry.events.position()
    server.start()
    registry.events.position()  # a new connection
    server.stop()
    server.start()
    with caplog.at_level(logging.WARNING):
        registry.events.position()  # nobody noticed
        registry.leases.acquire("relay", "me")
    assert not caplog.records
    registry.close()
