"""All that is known of a deployment, gathered for people and programs to look at."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from registry.deployments import (
    TERMINAL,
    Block,
    Condition,
    ConditionType,
    ReplicaStatus,
    Rollout,
    RolloutState,
    RouteTable,
)
from registry.errors import NotFound
from registry.followers import declared_references, is_led
from registry.operations import Intent
from registry.protocol import Registry
from registry.references import Reference
from registry.values import AppObject
from serving.deployment import Deployment, is_public_address

__all__ = ["Overview", "State", "overview", "overviews"]

_ROLLOUTS = 10
_UNLED = "Nobody leads it: start 'podium up'."
#: What only a controller can know, from one look to the next.
_FLEETING = frozenset({ConditionType.AVAILABLE, ConditionType.UP_TO_DATE, ConditionType.PROGRESSING})
_UNKNOWN = "unknown"  # the phase of a replica that nobody looks at


class State(StrEnum):
    """One word for a deployment."""

    LIVE = "live"  # all that was asked for is so
    ROLLING = "rolling"  # something is being brought about
    FAILED = "failed"  # what was asked for last could not be served; what was live still is
    PAUSED = "paused"
    DOWN = "down"  # a name that has a route is not answered
    WAITING = "waiting"  # for a version: what a name of it follows does not exist yet
    NEW = "new"  # nobody has begun with it
    STOPPED = "stopped"  # no controller is at work on it, and nothing of it ran when the last one ended
    UNLED = "unled"  # no controller is at work on it; what it left running may still answer


@dataclass(frozen=True, slots=True)
class Overview:
    """One deployment: what is declared, what it was told, what is so."""

    name: str
    declared: AppObject | None  # None: it runs in the foreground, or is no longer declared
    is_led: bool
    intent: Intent
    table: RouteTable
    latest: Mapping[str, Rollout]  # served name -> its newest rollout
    rollouts: tuple[Rollout, ...]  # newest first
    seen: tuple[ReplicaStatus, ...]  # replicas, as a controller last saw them
    told: tuple[Condition, ...]  # as a controller last said
    blocks: tuple[Block, ...]
    wanted: Mapping[str, str] = field(default_factory=dict)  # served name -> what its reference means now

    @property
    def follows(self) -> dict[str, str]:
        """Served name (also BASE) -> reference."""
        return follows(self.declared, self.latest)

    @property
    def is_paused(self) -> bool:
        return self.intent.paused or self.is_declared_paused

    @property
    def is_declared_paused(self) -> bool:
        return self.declared is not None and bool(self.declared.body.get("paused"))

    @property
    def is_public(self) -> bool:
        """Whether other machines may reach it."""
        return self.declared is not None and is_public_address(self.declared.body.get("host", "127.0.0.1"))

    @property
    def address(self) -> str | None:
        """Where clients ask."""
        running = [replica for replica in self.replicas if replica.phase != "absent"]
        return next((r.address or r.endpoint for r in running if r.address or r.endpoint), None)

    @property
    def missing(self) -> dict[str, str]:
        """Served name (also BASE) -> reference that does not exist yet."""
        return {served: text for served, text in self.follows.items() if served not in self.wanted}

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Where each replica is. Without a controller nobody knows, but of those that had ended."""
        return self.seen if self.is_led else tuple(_forgotten(replica) for replica in self.seen)

    @property
    def ready(self) -> int:
        """How many replicas can answer, as far as anybody knows."""
        return sum(replica.phase == "ready" for replica in self.replicas)

    @property
    def wanted_replicas(self) -> int:
        """How many there should be."""
        if self.declared is not None:
            return int(self.declared.body.get("replicas", 1))
        return sum(replica.phase != "absent" for replica in self.seen)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What is true of it, and why: first whether a controller says so."""
        led = Condition(ConditionType.LED, self.is_led, "" if self.is_led else _UNLED)
        told = sorted(self.told, key=lambda condition: list(ConditionType).index(condition.type))
        return (led, *(each if self.is_led else _faded(each) for each in told))

    @property
    def state(self) -> State:
        if not self.is_led:
            gone = all(replica.phase == "absent" for replica in self.replicas)
            return State.STOPPED if self.seen and gone else State.UNLED
        if self._holds(ConditionType.AVAILABLE) is False and self.table.routes:
            return State.DOWN
        if self.is_paused:
            return State.PAUSED
        if any(rollout.state not in TERMINAL for rollout in self.latest.values()):
            return State.ROLLING
        if any(rollout.state is RolloutState.FAILED for rollout in self.latest.values()):
            return State.FAILED
        if self._holds(ConditionType.PROGRESSING):
            return State.ROLLING
        if self.missing:
            return State.WAITING
        return State.LIVE if self.latest or self.table.routes else State.NEW

    @property
    def remark(self) -> str:
        """What to do about its state, where a person has to."""
        match self.state:
            case State.STOPPED | State.UNLED:
                return _UNLED
            case State.WAITING:
                return "; ".join(_how_to_make(text) for text in sorted(set(self.missing.values()))) + "."
            case _:
                return ""

    def _holds(self, type: ConditionType) -> bool | None:
        return next((condition.holds for condition in self.conditions if condition.type is type), None)

    def content_name(self, digest: str) -> str:
        """A reference for a digest, where one is at hand."""
        found = {rollout.target.digest: rollout.target.ref for rollout in self.rollouts}
        for route in self.table.routes.values():
            found[route.current.digest] = route.current.ref
        return found.get(digest, digest[:19])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON values. No hash of a key is in it."""
        return {
            "deployment": self.name,
            "app": self.declared.app if self.declared else None,
            "state": self.state.value,
            "remark": self.remark,
            "led": self.is_led,
            "address": self.address,
            "paused": self.is_paused,
            "paused_by": self.intent.by if self.intent.paused else None,
            "paused_reason": self.intent.reason,
            "restarts": self.intent.restarts,
            "declared": dict(self.declared.body) if self.declared else None,
            "names": [self._name_json(served, reference) for served, reference in self.follows.items()],
            "generation": self.table.generation,
            "replicas": [replica.to_json() for replica in self.replicas],
            "conditions": [condition.to_json() for condition in self.conditions],
            "blocks": [self._block_json(block) for block in self.blocks],
            "rollouts": [_rollout_json(rollout) for rollout in self.rollouts],
            "keys": None if self.table.keys is None else len(self.table.keys),
        }

    def _name_json(self, served: str, reference: str) -> dict[str, Any]:
        route, latest = self.table.routes.get(served), self.latest.get(served)
        return {
            "served": served,
            "follows": reference,
            "wanted": self.wanted.get(served),
            "live": route.current.ref if route else None,
            "kept": route.previous.ref if route and route.previous else None,
            "rollout": latest.state.value if latest else None,
            "reason": latest.reason if latest else "",
        }

    def _block_json(self, block: Block) -> dict[str, Any]:
        return {
            "digest": block.digest,
            "ref": self.content_name(block.digest),
            "base_digest": block.base_digest,
            "reason": block.reason,
            "at": block.at.isoformat(),
        }


def _how_to_make(reference: str) -> str:
    """What a person does so that the reference exists."""
    if Reference.parse(reference).alias is None:
        return f"Push or publish {reference}"
    return f"Promote a version to {reference}"


def _forgotten(replica: ReplicaStatus) -> ReplicaStatus:
    if replica.phase == "absent":
        return replica
    return replace(replica, phase=_UNKNOWN, in_flight={}, detail=f"was {replica.phase} when last seen")


def _faded(condition: Condition) -> Condition:
    return replace(condition, holds=None, reason="") if condition.type in _FLEETING else condition


def _rollout_json(rollout: Rollout) -> dict[str, Any]:
    target = rollout.target
    return {
        "ref": target.ref,
        "served": target.served,
        "alias": target.alias,
        "generation": target.generation,
        "state": rollout.state.value,
        "started_at": rollout.started_at.isoformat(),
        "ended_at": rollout.ended_at.isoformat() if rollout.ended_at else None,
        "reason": rollout.reason,
    }


def overviews(registry: Registry) -> list[Overview]:
    """Every deployment that is declared or runs, by name. Blocks on the database."""
    declared = {each.name: each for each in registry.apps.objects(Deployment.deployable)}
    names = sorted({*declared, *registry.deployments.active()})
    return [_gather(registry, name, declared.get(name)) for name in names]


def overview(registry: Registry, name: str) -> Overview:
    """One deployment; raises `NotFound`, which names those that are there. Blocks on the database."""
    declared = {each.name: each for each in registry.apps.objects(Deployment.deployable)}
    known = sorted({*declared, *registry.deployments.active()})
    if name not in known:
        there = f"There are: {', '.join(known)}." if known else "Nothing is deployed: see 'podium deploy'."
        raise NotFound(f"There is no deployment '{name[:100]}'.", remedy=there)
    return _gather(registry, name, declared.get(name))


def _gather(registry: Registry, name: str, declared: AppObject | None) -> Overview:
    deployments = registry.deployments
    latest = {rollout.target.served: rollout for rollout in deployments.latest_rollouts(name)}
    return Overview(
        name=name,
        declared=declared,
        is_led=is_led(registry, name),
        intent=registry.operations.intent(name),
        table=deployments.routes(name),
        latest=latest,
        rollouts=tuple(deployments.rollouts(name, limit=_ROLLOUTS)),
        seen=tuple(deployments.replicas(name)),
        told=tuple(deployments.conditions(name)),
        blocks=tuple(deployments.blocks(name)),
        wanted=_wanted(registry, follows(declared, latest)),
    )


def follows(declared: AppObject | None, latest: Mapping[str, Rollout]) -> dict[str, str]:
    """Served name (also BASE) -> reference, as declared, or as its rollouts say."""
    if declared is not None:
        return declared_references(declared)
    targets = {served: rollout.target for served, rollout in latest.items()}
    return {s: f"{t.artifact}:{t.alias}" if t.alias else t.ref for s, t in targets.items()}


def _wanted(registry: Registry, references: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for served, text in references.items():
        with suppress(NotFound):
            found[served] = registry.catalog.resolve(text).ref
    return found
