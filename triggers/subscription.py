"""Subscriptions: functions that handle events, declared in an app file.

@subscribe(OnPromotion("support-bot", alias="candidate"))
def announce(event: Received[AliasMoved], context: Context) -> None:
    with context.transaction():
        context.registry.promotions.promote(event.ref, "staging")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from registry.errors import InvalidReference
from registry.references import check_name
from registry.values import Access
from triggers.errors import InvalidSubscription
from triggers.filters import Filter, filter_from_json, filter_to_json
from triggers.retry import RetryPolicy

if TYPE_CHECKING:
    from triggers.context import Context
    from triggers.received import Received

Handler = Callable[["Received[Any]", "Context"], Awaitable[None] | None]
Mode = Literal["each", "latest"]


@dataclass(frozen=True, slots=True)
class Terms:
    """Which events a subscription or trigger gets, and how often it is tried."""

    on: Filter
    access: Access = Access.EACH
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def to_json(self) -> dict[str, Any]:
        return {
            "on": filter_to_json(self.on),
            "mode": self.access.value,
            "retries": self.retry.retries,
            "backoff": self.retry.backoff,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Terms:
        retry = RetryPolicy(body["retries"], body["backoff"])
        return cls(filter_from_json(body["on"]), Access(body["mode"]), retry)


class Subscription:
    """A handler with its terms. Called directly it is just that function."""

    deployable: ClassVar[str] = "subscription"

    def __init__(self, handler: Handler, name: str, terms: Terms) -> None:
        update_wrapper(self, handler)
        self.handler = handler
        self.name = name
        self.terms = terms

    def __call__(self, event: Received[Any], context: Context) -> Awaitable[None] | None:
        return self.handler(event, context)

    def to_json(self) -> Mapping[str, Any]:
        return self.terms.to_json()

    def __repr__(self) -> str:
        return f"Subscription({self.name!r})"


def subscribe(
    on: Filter,
    *,
    mode: Mode = "each",
    retries: int = 5,
    backoff: float = 1.0,
    name: str | None = None,
) -> Callable[[Handler], Subscription]:
    """Make a function handle the events that match ``on``.

    It is called as ``handler(event, context)`` in a thread of its own; an ``async`` function runs there in
    an event loop of its own. With ``mode="each"`` it gets every event; with ``"latest"`` those that came
    while an older one of the same artifact waited replace it. A handler that raises is called again up to
    ``retries`` times, the first time after about ``backoff`` seconds; then the event is a dead letter. It is
    also called again when its process dies, so effects outside the registry must be keyed by
    ``context.idempotency_key``.

    Raises:
        InvalidSubscription: a setting cannot be used, or the name (the function's, unless given) is none.
    """
    terms = Terms(on, access_of(mode), RetryPolicy(retries, backoff))

    def decorate(handler: Handler) -> Subscription:
        if not callable(handler):
            raise InvalidSubscription(f"{handler!r} cannot handle events.", remedy="Decorate a function.")
        return Subscription(handler, declared_name(name or handler.__name__.replace("_", "-").lower()), terms)

    return decorate


def access_of(mode: str) -> Access:
    try:
        return Access(mode)
    except ValueError as error:
        raise InvalidSubscription(f"'{mode}' is no mode.", remedy="Modes are 'each' and 'latest'.") from error


def declared_name(name: str) -> str:
    """``name`` if a subscription or trigger may have it, else `InvalidSubscription`."""
    try:
        return check_name(name)
    except InvalidReference as error:
        raise InvalidSubscription(
            f"'{name[:80]}' cannot name a subscription or trigger.", remedy=error.remedy
        ) from error
