"""podium's trainers: tasks, the workers that carry them out, and the recipes that podium brings.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.resources import Resources as Resources
    from trainers.catalogue import recipe as recipe
    from trainers.tasks import Task as Task
    from trainers.tasks import TaskEnvironment as TaskEnvironment
    from trainers.worker import run_worker as run_worker

_HOMES = {
    "Resources": "registry.resources",
    "Task": "trainers.tasks",
    "TaskEnvironment": "trainers.tasks",
    "recipe": "trainers.catalogue",
    "run_worker": "trainers.worker",
}

__all__ = ["Resources", "Task", "TaskEnvironment", "recipe", "run_worker"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainers' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
