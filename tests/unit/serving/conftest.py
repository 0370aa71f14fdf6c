"""Fixtures of serving's unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.common.registries import Place
from tests.common.serving import World


@pytest.fixture
def world(tmp_path: Path, sqlite_place: Place) -> World:
    """A registry with a promoted base, and a deployment that nobody controls yet."""
    made = World(tmp_path, sqlite_place.open())
    made.publish_base()
    return made
