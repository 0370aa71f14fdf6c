"""What `podium doctor` finds of packages that do not go together."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from registry import doctor
from registry.settings import Settings


@pytest.mark.parametrize(
    ("status", "ok", "says"), [(0, True, "works with"), (1, False, "cannot be imported")]
)
def test_a_torchvision_that_cannot_be_imported_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, ok: bool, says: str
) -> None:
    monkeypatch.setattr(doctor, "_version", {"torchvision": "0.28.0"}.get)
    ended = subprocess.CompletedProcess([], status)
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: ended)
    found = doctor._companions(Settings(home=tmp_path))
    assert (found.ok, found.needed) == (ok, False)
    assert says in found.says and "torchvision 0.28.0" in found.says
    assert ok or "pip uninstall torchvision" in found.remedy
