"""Rollouts and routes: what became of a promotion at each deployment that follows the alias.

An alias says what *should* be live; a route says what *is*. A rollout brings one to the other, and ends in
exactly one of live, failed and superseded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

#: The served name under which a deployment's base model has its rollouts and its route.
BASE = ""


class RolloutState(StrEnum):
    STARTED = "started"  # staged, checked, loaded, probed; the route is still the old one
    FLIPPED = "flipped"  # the route is decided, and replicas are taking it; it cannot fail any more
    LIVE = "live"  # every routable replica answers with the version
    FAILED = "failed"  # it could not be served; the route was never touched
    SUPERSEDED = "superseded"  # something newer was asked for, or the name dropped, before it was live


#: The moves that a rollout may make.
TRANSITIONS: Mapping[RolloutState, frozenset[RolloutState]] = {
    RolloutState.STARTED: frozenset({RolloutState.FLIPPED, RolloutState.FAILED, RolloutState.SUPERSEDED}),
    RolloutState.FLIPPED: frozenset({RolloutState.LIVE, RolloutState.SUPERSEDED}),
    RolloutState.LIVE: frozenset(),
    RolloutState.FAILED: frozenset(),
    RolloutState.SUPERSEDED: frozenset(),
}

#: States after which nothing follows; each has an event of its own.
TERMINAL = frozenset({RolloutState.LIVE, RolloutState.FAILED, RolloutState.SUPERSEDED})


@dataclass(frozen=True, slots=True)
class Target:
    """The version that a served name should answer with, and what made it so."""

    deployment: str
    revision: int  # of the deployment's declaration
    served: str  # name that clients ask for; BASE for the base model
    artifact: str
    alias: str | None  # None: the declaration names the version itself
    generation: int  # of the alias; 0 without one
    version: int
    digest: str

    @property
    def ref(self) -> str:
        """The immutable name under which the version is loaded, ``ticket-router:v7``."""
        return f"{self.artifact}:v{self.version}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One target on its way to be live."""

    id: str
    target: Target
    state: RolloutState
    started_at: datetime
    ended_at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that a route needs on every replica."""

    ref: str  # "ticket-router:v7"
    digest: str


@dataclass(frozen=True, slots=True)
class Route:
    """What a served name is answered by, and what it was answered by before, kept ready for a rollback."""

    served: str
    current: Loaded
    generation: int  # of the alias when the route was decided
    rollout: str
    previous: Loaded | None = None


@dataclass(frozen=True, slots=True)
class RouteTable:
    """All routes of a deployment, and who may use them, under one generation that rises with every change."""

    generation: int = 0
    routes: Mapping[str, Route] = field(default_factory=dict)  # served name (also BASE) -> route
    engine: str = ""  # settings with which the base runs, as the controller wrote them down
    keys: Mapping[str, str] | None = None  # id of a client's key -> its sha256; None: nobody needs a key

    @property
    def base(self) -> Loaded | None:
        return self.routes[BASE].current if BASE in self.routes else None


@dataclass(frozen=True, slots=True)
class Block:
    """A content that a deployment does not try again, with this base and engine, until a person says so."""

    deployment: str
    digest: str
    base_digest: str
    engine: str  # fingerprint of the engine's settings
    reason: str
    at: datetime


class ConditionType(StrEnum):
    LED = "led"  # a controller is at work on it; known from its lease, and stored nowhere
    AVAILABLE = "available"  # every name that has a route is answered
    UP_TO_DATE = "up-to-date"  # all replicas are there, and have the newest map
    PROGRESSING = "progressing"  # something is being brought about
    PAUSED = "paused"  # nothing new is rolled out
    FAILED = "failed"  # what was asked for last could not be served


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is true or not of a deployment, as its controller last saw it, and why."""

    type: ConditionType
    holds: bool | None  # None: nobody knows, because nobody leads it; never stored
    reason: str = ""  # in words
    since: datetime | None = None  # when it came to hold or not; set by the registry

    def to_json(self) -> dict[str, Any]:
        return {
            "type": self.type.value,
            "holds": self.holds,
            "reason": self.reason,
            "since": self.since.isoformat() if self.since else None,
        }


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """What the controller last saw of a replica, for people and for clients that look for an address."""

    deployment: str
    index: int
    phase: str
    endpoint: str | None = None  # the process's own
    address: str | None = None  # where clients ask: the proxy's, or its own without one
    boot: str | None = None
    base: str | None = None
    models: tuple[str, ...] = ()
    in_flight: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""
    at: datetime | None = None  # set by the registry

    def to_json(self) -> dict[str, Any]:
        return {
            "deployment": self.deployment,
            "index": self.index,
            "phase": self.phase,
            "endpoint": self.endpoint,
            "address": self.address,
            "boot": self.boot,
            "base": self.base,
            "models": list(self.models),
            "in_flight": dict(self.in_flight),
            "detail": self.detail,
            "at": self.at.isoformat() if self.at else None,
        }
