"""Writing down what a controller sees for those who ask: soon what matters, seldom what flickers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from registry.deployments import Condition, ReplicaStatus
from registry.protocol import Registry

__all__ = ["Recorder"]

_SELDOM_SECONDS = 2.0  # between two writes of what changes with every answer and every wait

Seen = tuple[Sequence[ReplicaStatus], Sequence[Condition]]


class Recorder:
    """Remembers what was written, so that nothing is written twice."""

    def __init__(self, registry: Registry, deployment: str, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._deployment = deployment
        self._clock = clock
        self._written: Seen = ((), ())
        self._at = 0.0

    def record(self, replicas: Sequence[ReplicaStatus], conditions: Sequence[Condition] | None) -> None:
        """Record both; without conditions, in the middle of steps, no more than where replicas are.

        Blocks on the database.

        Raises:
            StaleAuthority: another controller leads.
        """
        settled = conditions is not None
        seen = (tuple(replicas), tuple(self._written[1] if conditions is None else conditions))
        core = _lasting if settled else _whereabouts
        is_late = settled and self._clock() - self._at >= _SELDOM_SECONDS
        if core(seen) != core(self._written) or (is_late and seen != self._written):
            self._registry.deployments.observe(self._deployment, seen[0], seen[1])
            self._written, self._at = seen, self._clock()


def _lasting(seen: Seen) -> object:
    """Without what may differ from one look to the next though nothing has happened."""
    replicas, conditions = seen
    return [replace(r, in_flight={}) for r in replicas], [(c.type, c.holds) for c in conditions]


def _whereabouts(seen: Seen) -> object:
    return [replace(r, in_flight={}, models=(), detail="") for r in seen[0]]
