"""Fixtures of serving's unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.common.serving import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A registry with a promoted base, and a deployment that nobody controls yet."""
    made = World(tmp_path)
    made.publish_base()
    yield made
    made.close()
