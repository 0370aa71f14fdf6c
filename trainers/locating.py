"""Where a task is: a recipe by its name, or ``FILE:TASK`` in a folder of code."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from registry.apps.loading import load_file
from registry.suggesting import did_you_mean
from trainers.catalogue import recipe
from trainers.errors import TaskNotFound
from trainers.tasks import Task


def split(name: str) -> tuple[str, str] | None:
    """(file, task) of ``train.py:train``; None for a recipe."""
    file, colon, task = name.rpartition(":")
    return (file, task) if colon else None


def load_task(name: str, root: Path | None = None) -> Task[..., Any]:
    """The task of that name; ``root`` is the folder of code that a file is in.

    Raises:
        TaskNotFound: no such recipe or task.
        InvalidApp: there is no such file, or it cannot be imported.
    """
    located = split(name)
    if located is None:
        return recipe(name)
    file, task = located
    loaded = load_file((root or Path()) / file, root=root)
    return task_in(loaded.module, file, task)


def task_in(module: ModuleType, file: str, name: str) -> Task[..., Any]:
    """The task of a user's module that has that name, as a variable or as a task.

    Raises:
        TaskNotFound: there is none.
    """
    tasks = {variable: value for variable, value in vars(module).items() if isinstance(value, Task)}
    for found in (tasks.get(name), *(task for task in tasks.values() if task.name == name)):
        if found is not None:
            return found
    raise TaskNotFound(
        f"{file} has no task '{name[:80]}'.",
        remedy=did_you_mean(
            name,
            tasks,
            f"Tasks there are: {', '.join(sorted(tasks)) or 'none; decorate a function with @env.task'}.",
        ),
    )
