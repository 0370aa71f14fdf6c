"""What led to an event, and what followed from it, as far as a page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from registry.deployments import Rollout
from registry.errors import NotFound
from registry.events import EventType
from registry.protocol import Registry
from registry.runs import Run
from registry.values import Event

_MOST = 60  # events shown on each side
_DEEPEST = 6
_MOVES = (EventType.ALIAS_PROMOTED, EventType.ALIAS_ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Effect:
    """An event that followed, and how many causes lie between it and the one that is looked at."""

    depth: int
    event: Event
    run: Run | None = None  # the run that it says was queued, as it is now


def causes(registry: Registry, event: Event) -> list[Event]:
    """What led to an event, the first cause first."""
    found: list[Event] = []
    cause = event.causation
    while cause is not None and len(found) < _MOST:
        try:
            found.append(registry.events.get(cause))
        except NotFound:
            break
        cause = found[-1].causation
    return found[::-1]


def effects(registry: Registry, event: Event) -> list[Effect]:
    """What followed from an event, each followed by what it led to itself; not more than a page takes."""
    found: list[Effect] = []
    for effect in _below(registry, event, 0):
        found.append(effect)
        if len(found) == _MOST:
            break
    return found


def _below(registry: Registry, event: Event, depth: int) -> Iterator[Effect]:
    if depth == _DEEPEST:
        return
    for each in registry.events.caused_by(event.id, limit=_MOST):
        yield Effect(depth, each, _queued(registry, each))
        yield from _below(registry, each, depth + 1)


def _queued(registry: Registry, event: Event) -> Run | None:
    if event.type != EventType.RUN_QUEUED:
        return None
    try:
        return registry.runs.get(event.data["run"])
    except NotFound:
        return None


def rollouts(registry: Registry, event: Event) -> list[Rollout]:
    """What became, at each deployment, of the move of an alias that an event tells of."""
    if event.type not in _MOVES:
        return []
    data = event.data
    return registry.deployments.of_promotion(data["artifact"], data["alias"], data["generation"])
