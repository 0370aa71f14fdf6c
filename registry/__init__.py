"""podium's registry: immutable versions, aliases that move behind gates, and the events that say so.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.apps.app import App as App
    from registry.artifacts import Adapter as Adapter
    from registry.artifacts import Artifact as Artifact
    from registry.artifacts import Checkpoint as Checkpoint
    from registry.artifacts import Dataset as Dataset
    from registry.artifacts import Dir as Dir
    from registry.artifacts import File as File
    from registry.artifacts import Model as Model
    from registry.artifacts import Report as Report
    from registry.connection import connect as connect
    from registry.errors import PodiumError as PodiumError
    from registry.events import EventType as EventType
    from registry.gates.rules import Approved as Approved
    from registry.gates.rules import BetterThanBase as BetterThanBase
    from registry.gates.rules import BetterThanIncumbent as BetterThanIncumbent
    from registry.gates.rules import Gate as Gate
    from registry.gates.rules import Threshold as Threshold
    from registry.protocol import Registry as Registry
    from registry.references import Reference as Reference
    from registry.resources import Resources as Resources
    from registry.settings import Settings as Settings
    from registry.values import Event as Event
    from registry.values import Parent as Parent
    from registry.values import Role as Role
    from registry.values import Version as Version

_HOMES = {
    "Adapter": "registry.artifacts",
    "App": "registry.apps.app",
    "Approved": "registry.gates.rules",
    "Artifact": "registry.artifacts",
    "BetterThanBase": "registry.gates.rules",
    "BetterThanIncumbent": "registry.gates.rules",
    "Checkpoint": "registry.artifacts",
    "Dataset": "registry.artifacts",
    "Dir": "registry.artifacts",
    "Event": "registry.values",
    "EventType": "registry.events",
    "File": "registry.artifacts",
    "Gate": "registry.gates.rules",
    "Model": "registry.artifacts",
    "Parent": "registry.values",
    "PodiumError": "registry.errors",
    "Reference": "registry.references",
    "Registry": "registry.protocol",
    "Report": "registry.artifacts",
    "Resources": "registry.resources",
    "Role": "registry.values",
    "Settings": "registry.settings",
    "Threshold": "registry.gates.rules",
    "Version": "registry.values",
    "connect": "registry.connection",
}

__all__ = [
    "Adapter",
    "App",
    "Approved",
    "Artifact",
    "BetterThanBase",
    "BetterThanIncumbent",
    "Checkpoint",
    "Dataset",
    "Dir",
    "Event",
    "EventType",
    "File",
    "Gate",
    "Model",
    "Parent",
    "PodiumError",
    "Reference",
    "Registry",
    "Report",
    "Resources",
    "Role",
    "Settings",
    "Threshold",
    "Version",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'registry' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
