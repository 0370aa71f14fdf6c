"""What a handler is given beside the event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from registry.deliveries import Delivery, DeliveryState
from registry.protocol import Registry
from triggers.errors import DeliveryRefused


@dataclass
class Context:
    """One attempt to handle one event.

    ``registry`` acts on behalf of the subscription: what it writes names the event as its cause, and is
    refused once the delivery has passed to another process.
    """

    registry: Registry
    delivery: Delivery
    settled: bool = field(default=False, init=False)

    @property
    def subscription(self) -> str:
        """``APP/NAME``."""
        return self.delivery.subscription

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.delivery.attempts

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt: give it to services outside, so that they do a thing once."""
        return self.delivery.id

    @contextmanager
    def transaction(self) -> Iterator[Registry]:
        """Write to the registry and end the delivery, together or not at all: so it happens exactly once.

        Use it once, as the last thing that a handler does in the registry.
        """
        if self.settled:
            raise DeliveryRefused(
                f"The delivery {self.delivery.id} has ended already.",
                remedy="Put all effects of a handler into one transaction.",
            )
        with self.registry.transaction():
            yield self.registry
            self.registry.deliveries.end(self.delivery, DeliveryState.DONE)
        self.settled = True
