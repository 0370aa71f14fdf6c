"""Keeping what reacts to events from reacting to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from registry.values import Event

_LONGEST = 200  # events; a chain of causes this long is a loop of another kind


def actors_behind(
    event: Event,
    event_of: Callable[[str], Event | None],
    asked_by: Callable[[str], tuple[str, str | None] | None],
) -> Iterator[str]:
    """On whose behalf ``event`` happened, and what led to it, and so on to the first cause.

    ``event_of`` finds an event by its id. ``asked_by`` says of a run, by its id, who asked for it and the
    event that led to that: what a run does has the run as its actor.
    """
    found: Event | None = event
    for _ in range(_LONGEST):
        if found is None:
            return
        yield found.actor
        cause = found.causation
        if found.actor.startswith("run:"):
            asked = asked_by(found.actor.removeprefix("run:"))
            if asked is not None:
                yield asked[0]
                cause = cause or asked[1]
        if cause is None:
            return
        found = event_of(cause)
