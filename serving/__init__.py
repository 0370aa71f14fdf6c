"""podium's serving: deployments, vLLM processes, and rollouts that drop nothing.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.deployment import VLLM as VLLM
    from serving.deployment import Deployment as Deployment
    from serving.reconcile import run_controllers as run_controllers

_HOMES = {
    "Deployment": "serving.deployment",
    "VLLM": "serving.deployment",
    "run_controllers": "serving.reconcile",
}

__all__ = ["VLLM", "Deployment", "run_controllers"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'serving' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
