"""What deploy/ says of podium is true of this podium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from registry.settings import Settings

_DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize("file", ["compose.yaml", "README.md"])
def test_every_setting_that_is_named_exists(file: str) -> None:
    named = set(re.findall(r"PODIUM_([A-Z_]+)", (_DEPLOY / file).read_text()))
    assert named
    assert {name.lower() for name in named} <= set(Settings.model_fields)


def test_every_password_that_compose_asks_for_is_in_the_example() -> None:
    asked = set(re.findall(r"\$\{([A-Z0-9_]+)", (_DEPLOY / "compose.yaml").read_text()))
    offered = set(re.findall(r"^([A-Z0-9_]+)=$", (_DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert asked == offered


def test_the_image_takes_all_rooms() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (_DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == {"registry", "triggers", "trainers", "serving"}
