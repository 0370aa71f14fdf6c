"""On what conditions a run is carried out: how long it may take, when it is tried again, what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from registry.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Conditions:
    """All in seconds; None is "as long as it takes"."""

    timeout: float | None = None  # for one attempt, from its first process on
    queue_timeout: float | None = None  # for waiting until a worker takes it
    deadline: float | None = None  # from when it was asked for to its end, attempts and waiting together
    backoff: float | None = None  # before the first retry; each later one waits twice as long
    secrets: tuple[str, ...] = ()  # what it is given in its environment, and where that is to be had
    env: Mapping[str, str] = field(default_factory=dict)  # ... and what else, by name; nothing secret

    def __post_init__(self) -> None:
        for name in ("timeout", "queue_timeout", "deadline", "backoff"):
            value = getattr(self, name)
            if value is not None and not (value > 0 or (name == "backoff" and value == 0)):
                raise InvalidInput(
                    f"A {name} of {value} seconds cannot be kept.",
                    remedy="Give more than 0, or leave it out.",
                )

    def expires(self, asked: datetime, queued: datetime) -> datetime | None:
        """Until when it may wait for a worker: asked for at ``asked``, and waiting since ``queued``."""
        ends = [
            since + timedelta(seconds=allowed)
            for since, allowed in ((queued, self.queue_timeout), (asked, self.deadline))
            if allowed is not None
        ]
        return min(ends, default=None)

    def allowed(self, asked: datetime, now: datetime) -> float | None:
        """Seconds that an attempt which begins ``now`` may take."""
        left = None if self.deadline is None else self.deadline - (now - asked).total_seconds()
        return min((each for each in (self.timeout, left) if each is not None), default=None)

    def is_over(self, asked: datetime, now: datetime) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and now - asked >= timedelta(seconds=self.deadline)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON: what is set."""
        return {name: value for name, value in asdict(self).items() if value not in (None, (), {})}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Back from `to_json`."""
        return cls(**{**stored, "secrets": tuple(stored.get("secrets", ()))})
