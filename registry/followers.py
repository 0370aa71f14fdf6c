"""Who follows an alias: the names of deployments that are to answer with what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from registry.deployments import BASE
from registry.processes import is_known_dead
from registry.protocol import Registry
from registry.references import Reference
from registry.values import AppObject

_DECLARED = "Take paused=True out of its declaration, and deploy it."


@dataclass(frozen=True, slots=True)
class Follower:
    """A name of a deployment that is to follow the alias."""

    deployment: str
    served: str
    paused: str = ""  # how to resume it, if it is paused
    is_led: bool = True  # a controller is at work on it


def followers(registry: Registry, artifact: str, alias: str) -> list[Follower]:
    """All that is declared to follow the alias, begun or not, and what follows it in the foreground."""
    reference = Reference(artifact, alias=alias)
    found = []
    declared = registry.apps.objects("deployment")
    for each in declared:
        followed = declared_references(each)
        served = [name for name, text in followed.items() if Reference.parse(text) == reference]
        if served:
            paused = _DECLARED if each.body.get("paused") else _by_hand(registry, each.name)
            found += [Follower(each.name, name, paused, is_led(registry, each.name)) for name in served]
    for deployment in set(registry.deployments.active()) - {each.name for each in declared}:
        if is_led(registry, deployment):
            found += _undeclared(registry, deployment, artifact, alias)
    return found


def declared_references(deployment: AppObject) -> dict[str, str]:
    """Served name (also BASE) -> the reference that it follows by the declaration."""
    return {BASE: deployment.body["base"], **deployment.body["serves"]}


def _undeclared(registry: Registry, deployment: str, artifact: str, alias: str) -> list[Follower]:
    """Names of a deployment that `podium serve` runs, by what it followed until now."""
    return [
        Follower(deployment, rollout.target.served, _by_hand(registry, deployment))
        for rollout in registry.deployments.latest_rollouts(deployment)
        if (rollout.target.artifact, rollout.target.alias) == (artifact, alias)
    ]


def _by_hand(registry: Registry, deployment: str) -> str:
    paused = registry.operations.intent(deployment).paused
    return f"Run 'podium deployments resume {deployment}'." if paused else ""


def is_led(registry: Registry, deployment: str) -> bool:
    """Whether a controller is at work on the deployment."""
    lease = registry.leases.get(f"controller/{deployment}")
    return lease is not None and not is_known_dead(lease.holder)
