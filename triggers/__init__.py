"""podium's events on the move: from the outbox through the stream to subscriptions and triggers.

What an app file declares is imported from here. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triggers.actions import Notify as Notify
    from triggers.actions import Promote as Promote
    from triggers.actions import QueueRun as QueueRun
    from triggers.actions import queue_run as queue_run
    from triggers.context import Context as Context
    from triggers.filters import OnArtifact as OnArtifact
    from triggers.filters import OnEvaluation as OnEvaluation
    from triggers.filters import OnPromotion as OnPromotion
    from triggers.filters import OnRollout as OnRollout
    from triggers.filters import OnRun as OnRun
    from triggers.received import Received as Received
    from triggers.subscription import subscribe as subscribe
    from triggers.trigger import Trigger as Trigger

_HOMES = {
    "Context": "triggers.context",
    "Notify": "triggers.actions",
    "OnArtifact": "triggers.filters",
    "OnEvaluation": "triggers.filters",
    "OnPromotion": "triggers.filters",
    "OnRollout": "triggers.filters",
    "OnRun": "triggers.filters",
    "Promote": "triggers.actions",
    "QueueRun": "triggers.actions",
    "Received": "triggers.received",
    "Trigger": "triggers.trigger",
    "queue_run": "triggers.actions",
    "subscribe": "triggers.subscription",
}

__all__ = [
    "Context",
    "Notify",
    "OnArtifact",
    "OnEvaluation",
    "OnPromotion",
    "OnRollout",
    "OnRun",
    "Promote",
    "QueueRun",
    "Received",
    "Trigger",
    "queue_run",
    "subscribe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'triggers' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
