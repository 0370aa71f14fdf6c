"""What becomes of a delivery after an attempt."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from registry.capture.secrets import scrub
from registry.deliveries import Delivery, DeliveryState
from registry.errors import AliasHeld, PodiumError, Refused, Unavailable
from triggers.errors import SelfStart
from triggers.retry import RetryPolicy

_MOST_ERROR_TEXT = 4000


@dataclass(frozen=True, slots=True)
class Ending:
    """How a delivery is to be left."""

    state: DeliveryState
    delay: float = 0.0  # seconds until it is due again
    error: str | None = None
    waits_for: str | None = None
    counted: bool = True  # False: the attempt is given back


def ending_after(error: BaseException | None, delivery: Delivery, policy: RetryPolicy) -> Ending:
    """What follows from how the handler ended; ``error`` is what it raised.

    A held alias is waited for. A rule that said no (a gate, a moved alias) is an answer: asking again gives
    the same one, and the refusal is an event of its own. Everything else may pass, and is tried again.
    """
    match error:
        case None:
            return Ending(DeliveryState.DONE)
        case AliasHeld():
            alias = f"{error.details.get('artifact')}:{error.details.get('alias')}"
            return Ending(DeliveryState.HELD, error=text_of(error), waits_for=alias, counted=False)
        case SelfStart():
            return Ending(DeliveryState.STOPPED, error=text_of(error))
        case Refused():
            return Ending(DeliveryState.DONE, error=text_of(error))
        case _:
            delay = policy.delay(delivery.attempts, delivery.id)
            if delay is None:
                return Ending(DeliveryState.DEAD, error=text_of(error))
            return Ending(DeliveryState.PENDING, delay, error=text_of(error))


def abandoned(delivery: Delivery, policy: RetryPolicy) -> Ending | None:
    """The end of a delivery that was just claimed and under which its process has died too often."""
    if delivery.attempts <= policy.retries + 1:
        return None
    died = f"The process died in {delivery.attempts - 1} attempts to handle it."
    last = f" Last error: {delivery.error}" if delivery.error else ""
    return Ending(DeliveryState.DEAD, error=died + last)


def text_of(error: BaseException) -> str:
    """An error as it is kept with the delivery: without secrets, and not endless."""
    if isinstance(error, PodiumError):
        said = f"{error.message} {error.remedy}".strip()
        return scrub(f"{type(error).__name__}: {said}" if isinstance(error, Unavailable) else said)
    lines = "".join(traceback.format_exception(error))
    return scrub(lines if len(lines) <= _MOST_ERROR_TEXT else "..." + lines[-_MOST_ERROR_TEXT:])
