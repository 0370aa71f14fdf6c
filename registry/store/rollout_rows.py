"""Rows of rollouts, routes and replicas as the values of `registry.deployments`."""

from __future__ import annotations

import json

from registry.database.engine import Row, to_time
from registry.deployments import Loaded, ReplicaStatus, Rollout, RolloutState, Route, Target


def identity(target: Target) -> dict[str, object]:
    """What tells a target from every other, as the columns of a rollout."""
    return {
        "deployment": target.deployment,
        "revision": target.revision,
        "served": target.served,
        "artifact": target.artifact,
        "alias": target.alias or "",
        "generation": target.generation,
        "version": target.version,
    }


def to_rollout(row: Row) -> Rollout:
    (
        id,
        deployment,
        revision,
        served,
        artifact,
        alias,
        generation,
        version,
        digest,
        state,
        started,
        ended,
        reason,
    ) = row
    target = Target(deployment, revision, served, artifact, alias or None, generation, version, digest)
    return Rollout(
        id,
        target,
        RolloutState(state),
        to_time(started),
        to_time(ended) if ended is not None else None,
        reason,
    )


def to_route(row: Row) -> Route:
    served, ref, digest, generation, rollout, previous_ref, previous_digest = row
    previous = Loaded(previous_ref, previous_digest) if previous_ref else None
    return Route(served, Loaded(ref, digest), generation, rollout, previous)


def to_status(row: Row) -> ReplicaStatus:
    raw = json.loads(row[0])
    return ReplicaStatus(**{**raw, "models": tuple(raw["models"]), "at": to_time(row[1])})
