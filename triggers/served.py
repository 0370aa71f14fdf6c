"""What a consumer serves: subscriptions and triggers, with what is done for each event."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from registry.deliveries import Arrival
from registry.values import AppObject, Event
from triggers.context import Context
from triggers.performing import perform
from triggers.received import Received
from triggers.subscription import Handler, Subscription, Terms
from triggers.trigger import Trigger

Handle = Callable[[Received[Any], Context], None]


@dataclass(frozen=True)
class Served:
    """One subscription or trigger of an app."""

    name: str  # "APP/NAME"
    terms: Terms
    handle: Handle
    since: datetime | None = None  # when it was deployed; None: it counts from when it is first served

    @property
    def actor(self) -> str:
        """On whose behalf it writes."""
        return f"trigger:{self.name}"


def serve_subscription(app: str, subscription: Subscription, since: datetime | None = None) -> Served:
    """A declared handler as it is served."""
    name = f"{app}/{subscription.name}"
    return Served(name, subscription.terms, _blocking(subscription.handler), since)


def serve_trigger(declared: AppObject, code: AppObject | None) -> Served:
    """A deployed trigger as it is served; ``code`` names the bundle of its app."""
    trigger = Trigger.from_json(declared.name, declared.body)

    def handle(event: Received[Any], context: Context) -> None:
        perform(trigger.action, event, context, code)

    return Served(f"{declared.app}/{declared.name}", trigger.terms, handle, declared.changed_at)


def _blocking(handler: Handler) -> Handle:
    """A handler as a plain call; an ``async`` one runs in an event loop of its own, in the calling thread."""
    if inspect.iscoroutinefunction(handler):
        return lambda event, context: asyncio.run(handler(event, context))

    def call(event: Received[Any], context: Context) -> None:
        handler(event, context)

    return call


def arrivals(events: Sequence[Event], served: Sequence[Served], since: Mapping[str, int]) -> list[Arrival]:
    """The deliveries that events lead to: those that match, and came after the subscription began."""
    return [
        Arrival(each.name, event, each.terms.access)
        for event in events
        for each in served
        if event.sequence > since.get(each.name, event.sequence) and each.terms.on.matches(event)
    ]
