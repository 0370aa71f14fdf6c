"""podium's registry: immutable versions, aliases that move behind gates, and the events that say so.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.connection import connect as connect
    from registry.errors import PodiumError as PodiumError
    from registry.protocol import Registry as Registry
    from registry.references import Reference as Reference
    from registry.settings import Settings as Settings

_HOMES = {
    "PodiumError": "registry.errors",
    "Reference": "registry.references",
    "Registry": "registry.protocol",
    "Settings": "registry.settings",
    "connect": "registry.connection",
}

__all__ = ["PodiumError", "Reference", "Registry", "Settings", "connect"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'registry' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
