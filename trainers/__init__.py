"""podium's trainers: tasks, the workers that carry them out, and the recipes that podium brings.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.resources import Resources as Resources
    from trainers.catalogue import recipe as recipe
    from trainers.checkpoints import Checkpoints as Checkpoints
    from trainers.checkpoints import HFCheckpointCallback as HFCheckpointCallback
    from trainers.checkpoints import resumable as resumable
    from trainers.errors import ImagePullBackOffError as ImagePullBackOffError
    from trainers.errors import NonRecoverableError as NonRecoverableError
    from trainers.errors import OOMError as OOMError
    from trainers.errors import PipelineDiverged as PipelineDiverged
    from trainers.errors import RemoteError as RemoteError
    from trainers.errors import TaskCancelledError as TaskCancelledError
    from trainers.errors import TaskInterruptedError as TaskInterruptedError
    from trainers.errors import TaskTimeoutError as TaskTimeoutError
    from trainers.escalation import Shrink as Shrink
    from trainers.escalation import escalate as escalate
    from trainers.forking import recover as recover
    from trainers.forking import rerun as rerun
    from trainers.gathering import gather_map as gather_map
    from trainers.journalled import now as now
    from trainers.journalled import random as random
    from trainers.reports import report as report
    from trainers.tasks import Task as Task
    from trainers.tasks import TaskEnvironment as TaskEnvironment
    from trainers.worker import run_worker as run_worker

_HOMES = {
    "Checkpoints": "trainers.checkpoints",
    "HFCheckpointCallback": "trainers.checkpoints",
    "ImagePullBackOffError": "trainers.errors",
    "NonRecoverableError": "trainers.errors",
    "OOMError": "trainers.errors",
    "PipelineDiverged": "trainers.errors",
    "RemoteError": "trainers.errors",
    "Resources": "registry.resources",
    "Shrink": "trainers.escalation",
    "Task": "trainers.tasks",
    "TaskCancelledError": "trainers.errors",
    "TaskEnvironment": "trainers.tasks",
    "TaskInterruptedError": "trainers.errors",
    "TaskTimeoutError": "trainers.errors",
    "escalate": "trainers.escalation",
    "gather_map": "trainers.gathering",
    "now": "trainers.journalled",
    "random": "trainers.journalled",
    "recipe": "trainers.catalogue",
    "recover": "trainers.forking",
    "report": "trainers.reports",
    "rerun": "trainers.forking",
    "resumable": "trainers.checkpoints",
    "run_worker": "trainers.worker",
}

__all__ = [
    "Checkpoints",
    "HFCheckpointCallback",
    "ImagePullBackOffError",
    "NonRecoverableError",
    "OOMError",
    "PipelineDiverged",
    "RemoteError",
    "Resources",
    "Shrink",
    "Task",
    "TaskCancelledError",
    "TaskEnvironment",
    "TaskInterruptedError",
    "TaskTimeoutError",
    "escalate",
    "gather_map",
    "now",
    "random",
    "recipe",
    "recover",
    "report",
    "rerun",
    "resumable",
    "run_worker",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainers' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
