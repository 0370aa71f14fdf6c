"""Where versions of an artifact are live: what deployments route to, beside what aliases say."""

from __future__ import annotations

from dataclasses import dataclass

from registry.protocol import Registry


@dataclass(frozen=True, slots=True)
class Routed:
    """A served name of a deployment that a version answers."""

    deployment: str
    served: str  # "": the base model
    ref: str


def routed(registry: Registry, artifact: str) -> list[Routed]:
    """Every route to a version of the artifact."""
    return [
        Routed(deployment, served, route.current.ref)
        for deployment in registry.deployments.with_routes()
        for served, route in registry.deployments.routes(deployment).routes.items()
        if route.current.ref.partition(":")[0] == artifact
    ]
