"""When a delivery that failed is tried again, and when it is given up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from triggers.errors import InvalidSubscription

LONGEST_BACKOFF = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``retries`` more attempts after the first; each waits twice as long as the one before."""

    retries: int = 5
    backoff: float = 1.0  # seconds before the first retry

    def __post_init__(self) -> None:
        if self.retries < 0 or self.backoff < 0:
            raise InvalidSubscription(
                "Retries and backoff may not be negative.", remedy="Give 0 or more of both."
            )

    def delay(self, attempts: int, delivery: str) -> float | None:
        """Seconds until the next attempt after ``attempts`` have failed; None to give it up.

        Up to half of the delay is left away, by a share that depends on the delivery and the attempt alone:
        deliveries that failed together do not come back together.
        """
        if attempts > self.retries:
            return None
        full = min(LONGEST_BACKOFF, self.backoff * 2.0 ** min(attempts - 1, 32))
        return full * (0.5 + 0.5 * _share(f"{delivery}/{attempts}"))


def _share(text: str) -> float:
    """A number in [0, 1) that looks random and is the same each time."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64
