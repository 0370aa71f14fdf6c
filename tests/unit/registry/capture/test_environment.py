"""The environment a run ran in."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from registry.capture import describe_environment
from registry.capture.environment import locked_packages, recorded_variables


def distribution(folder: Path, name: str, version: str, origin: dict[str, object] | None = None) -> Path:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return folder


def lock_of(*folders: Path) -> list[str]:
    return locked_packages(importlib.metadata.distributions(path=[str(folder) for folder in folders]))


def test_the_lock_names_each_package_once_with_its_version(tmp_path: Path) -> None:
    distribution(tmp_path, "Some_Thing", "1.2")
    distribution(tmp_path, "other", "0.1")
    assert lock_of(tmp_path) == ["other==0.1", "some-thing==1.2"]


def test_of_two_versions_the_one_that_is_imported_counts(tmp_path: Path) -> None:
    first, second = distribution(tmp_path / "a", "x", "2"), distribution(tmp_path / "b", "x", "1")
    assert lock_of(first, second) == ["x==2"]


def test_a_package_from_a_repository_is_locked_to_its_commit_without_the_login(tmp_path: Path) -> None:
    origin = {
        "url": "https://ada:hunter2@git.example/x.git",
        "vcs_info": {"vcs": "git", "commit_id": "abc123"},
    }
    distribution(tmp_path, "x", "1", origin)
    (line,) = lock_of(tmp_path)
    assert line.startswith("x @ git+https://")
    assert line.endswith("git.example/x.git@abc123")
    assert "hunter2" not in line


def test_only_listed_variables_are_recorded() -> None:
    given = {
        "HF_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/root",
        "OMP_NUM_THREADS": "2",
        "NCCL_DEBUG": "INFO",
    }
    assert recorded_variables(given) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "2"}


def test_a_listed_variable_with_a_password_in_it_loses_that() -> None:
    recorded = recorded_variables({"HF_ENDPOINT": "https://ada:hunter2@hub.example"})
    assert "hunter2" not in recorded["HF_ENDPOINT"]
    assert recorded["HF_ENDPOINT"].endswith("@hub.example")


def test_this_environment_is_described_as_plain_json() -> None:
    described = json.loads(json.dumps(describe_environment({"TZ": "UTC"})))
    assert described["python"] == platform.python_version()
    assert described["variables"] == {"TZ": "UTC"}
    assert described["hardware"]["cores"] >= 1
    assert described["hardware"]["memory"] > 2**30
    assert f"pytest=={pytest.__version__}" in described["lock"]


def test_describing_imports_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys; from registry.capture import describe_environment as d; d({});"
        "print([m for m in ('torch', 'transformers', 'trl', 'peft') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
