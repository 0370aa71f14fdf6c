"""Where the unit tier has SQLite and a folder, this one has PostgreSQL and S3 as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.settings import Settings, load_settings
from tests.common.postgres import PostgresServer
from tests.common.services import Bucket


@pytest.fixture(params=["sqlite-and-folder", "postgres-and-s3"])
def settings(request: pytest.FixtureRequest, home: Path) -> Iterator[Settings]:
    """A registry of this test's own, once on each pair of stores; the environment says the same."""
    if request.param == "sqlite-and-folder":
        yield load_settings()
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    bucket: Bucket = request.getfixturevalue("s3")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    url = server.database()
    monkeypatch.setenv("PODIUM_URL", url)
    monkeypatch.setenv("PODIUM_BLOBS", f"{bucket.url}/store")
    yield load_settings()
    server.drop(url)
