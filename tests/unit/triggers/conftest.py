"""A registry in a temporary folder for tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.store.stored import StoredRegistry
from tests.common.outbox import open_registry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StoredRegistry]:
    opened = open_registry(tmp_path)
    yield opened
    opened.close()
