"""Checkpoints that survive the node: what a task saves at a step, its run's next attempt finds.

Names are loaded when they are first used: those for Hugging Face and PyTorch need these libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.checkpoints.huggingface import HFCheckpointCallback as HFCheckpointCallback
    from trainers.checkpoints.loop import resumable as resumable
    from trainers.checkpoints.preemption import Interrupted as Interrupted
    from trainers.checkpoints.preemption import Preemption as Preemption
    from trainers.checkpoints.series import Checkpoints as Checkpoints
    from trainers.checkpoints.series import Restored as Restored

_HOMES = {
    "Checkpoints": "series",
    "HFCheckpointCallback": "huggingface",
    "Interrupted": "preemption",
    "Preemption": "preemption",
    "Restored": "series",
    "resumable": "loop",
}

__all__ = ["Checkpoints", "HFCheckpointCallback", "Interrupted", "Preemption", "Restored", "resumable"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainers.checkpoints' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
