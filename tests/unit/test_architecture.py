"""The rules of the house that a program can check.

Who may import whom is import-linter's to say, and that each ``__all__`` is sorted ruff's (pyproject.toml).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_ROOMS = ("registry", "triggers", "trainers", "serving")
_HEAVY = ("accelerate", "datasets", "mlflow", "peft", "torch", "transformers", "trl", "vllm")
#: Modules that are plugins of a heavy package, loaded by that package alone.
_PLUGINS: tuple[str, ...] = ("trainers.checkpoints.huggingface", "trainers.checkpoints.trainer_state")


def _sources(room: str) -> Iterator[Path]:
    return (_ROOT / room).rglob("*.py")


def _module(source: Path) -> str:
    parts = source.relative_to(_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules_after(statement: str) -> set[str]:
    """The top-level packages that a new interpreter has loaded after ``statement``."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{statement}\n{report}"], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("room", _ROOMS)
def test_every_public_name_exists(room: str) -> None:
    modules = list(filter(_is_importable, map(_module, _sources(room))))
    _modules_after(f"""
import importlib
for module in map(importlib.import_module, {modules!r}):
    for name in getattr(module, "__all__", []):
        getattr(module, name)""")


@pytest.mark.parametrize("room", _ROOMS)
def test_no_module_loads_a_model_library_when_it_is_imported(room: str) -> None:
    modules = list(filter(_is_importable, map(_module, _sources(room))))
    loaded = _modules_after(f"import importlib\nfor name in {modules!r}: importlib.import_module(name)")
    assert not loaded & set(_HEAVY)


def _is_importable(module: str) -> bool:
    """Whether an import is harmless: programs run when imported, and plugins belong to a heavy package."""
    return ".migrations" not in module and not module.endswith("__main__") and module not in _PLUGINS


def test_importing_the_registry_loads_neither_its_database_nor_its_store_libraries() -> None:
    loaded = _modules_after("import registry, registry.cli")  # commands are loaded in main()
    assert not loaded & {"alembic", "boto3", "botocore", "nats", "pydantic", "rich", "sqlalchemy", "sqlmodel"}
    assert "click" not in loaded


def test_no_command_loads_a_model_library_before_it_runs() -> None:
    commands = [command.value for command in entry_points(group="podium.commands")]
    modules = sorted({value.partition(":")[0] for value in commands})
    loaded = _modules_after(f"import importlib\nfor name in {modules!r}: importlib.import_module(name)")
    assert not loaded & set(_HEAVY)


@pytest.mark.parametrize("room", _ROOMS)
def test_no_file_is_named_after_nothing(room: str) -> None:
    banned = {"common", "helpers", "misc", "util", "utils"}
    assert [source for source in _sources(room) if {source.stem, source.parent.name} & banned] == []
