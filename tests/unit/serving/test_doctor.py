"""What `podium doctor` says of HAProxy."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from registry.doctor import LOOKS
from registry.settings import Settings
from serving.doctor import haproxy


def settings(tmp_path: Path, program: str) -> Settings:
    return Settings(home=tmp_path, haproxy=program)


def program(tmp_path: Path, script: str) -> str:
    path = tmp_path / "haproxy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_doctor_looks_at_it() -> None:
    (found,) = [each for each in entry_points(group=LOOKS) if each.name == "haproxy"]
    assert found.load() is haproxy


def test_its_version_is_said(tmp_path: Path) -> None:
    found = haproxy(
        settings(tmp_path, program(tmp_path, "echo 'HAProxy version 2.6.12 - https://haproxy.org/'"))
    )
    assert found.ok and found.says.endswith("haproxy, HAProxy version 2.6.12")


@pytest.mark.parametrize(
    ("script", "says"), [("exit 1", "does not start"), ("echo", "does not start"), (None, "is no program")]
)
def test_one_that_is_not_there_or_does_not_start_is_no_fault_of_podium(
    tmp_path: Path, script: str | None, says: str
) -> None:
    path = str(tmp_path / "nothing") if script is None else program(tmp_path, script)
    found = haproxy(settings(tmp_path, path))
    assert (found.ok, found.needed) == (False, False)
    assert says in found.says and found.remedy
