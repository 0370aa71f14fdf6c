"""The recipes that podium brings, as tasks: `podium run sft ...`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from registry.resources import Resources
from registry.suggesting import did_you_mean
from registry.values import Role
from trainers.errors import TaskNotFound
from trainers.tasks import Task

#: What computes with every core of the machine takes two: on a small one such runs go one after the other.
#: Side by side each would take longer than both do in turn.
_COMPUTES = Resources(cpu=2)
_COPIES = Resources(cpu=1)

#: name -> (where the function is, options of the task). Each is imported when it is used.
_RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "evaluate": (
        "trainers.recipes.evaluate",
        {"resources": _COMPUTES, "roles": {"subject": Role.SUBJECT, "data": Role.HELD_OUT}},
    ),
    "merge": ("trainers.recipes.merge", {"resources": _COPIES}),
    "prefetch": ("trainers.recipes.prefetch", {"resources": _COPIES}),
    "sft": ("trainers.recipes.sft", {"resources": _COMPUTES}),
}


def recipe_names() -> list[str]:
    return sorted(_RECIPES)


@cache
def recipe(name: str) -> Task[..., Any]:
    """The recipe of that name as a task.

    Raises:
        TaskNotFound: there is none.
    """
    if name not in _RECIPES:
        raise TaskNotFound(
            f"There is no recipe '{name[:80]}'.",
            remedy=did_you_mean(
                name,
                recipe_names(),
                f"Recipes are {', '.join(recipe_names())}; a task of your own is FILE:TASK.",
            ),
        )
    module, options = _RECIPES[name]
    function: Callable[..., Any] = getattr(import_module(module), name)
    return Task(function, **options)


def is_recipe(task: Task[..., Any]) -> bool:
    """Whether a task is one that podium brings: it has no code of the user's."""
    return _RECIPES.get(task.name, ("",))[0] == task.function.__module__
