"""Where a task is: a recipe by its name, or ``FILE:TASK`` in a folder of code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from registry.errors import InvalidInput
from trainers.catalogue import recipe
from trainers.errors import TaskNotFound
from trainers.tasks import Task


def split(name: str) -> tuple[str, str] | None:
    """(file, task) of ``train.py:train``; None for a recipe."""
    file, colon, task = name.rpartition(":")
    return (file, task) if colon else None


def load_task(name: str, root: Path | None = None) -> Task[..., Any]:
    """The task of that name; files are looked for below ``root``.

    Raises:
        TaskNotFound: no such recipe, file, or task.
    """
    located = split(name)
    if located is None:
        return recipe(name)
    file, attribute = located
    module = _import(Path(root or ".") / file, Path(root or "."))
    found = getattr(module, attribute, None)
    if not isinstance(found, Task):
        tasks = ", ".join(n for n, v in vars(module).items() if isinstance(v, Task)) or "none"
        raise TaskNotFound(
            f"{file} has no task '{attribute[:80]}'.",
            remedy=f"Decorate the function with @env.task. Tasks there: {tasks}.",
        )
    return found


def _import(file: Path, root: Path) -> ModuleType:
    """Import a user's file, with the modules beside it."""
    if not file.is_file():
        raise TaskNotFound(f"There is no file {file}.", remedy="Check the path before the colon.")
    # Ours are imported already, so a user's folder named 'registry' or 'trainers' cannot take their place.
    for folder in {str(root.resolve()), str(file.resolve().parent)} - set(sys.path):
        sys.path.append(folder)
    name = f"podium_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise InvalidInput(
            f"{file} cannot be imported: {type(error).__name__}: {error}.", remedy="Correct the file."
        ) from error
    return module
