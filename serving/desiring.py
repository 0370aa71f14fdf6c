"""What a stored declaration asks for now: its references resolved, and what people told it."""

from __future__ import annotations

from dataclasses import dataclass

from registry.deployments import Target
from registry.errors import AliasNotFound, ArtifactNotFound, NotFound, VersionNotFound
from registry.operations import Intent
from registry.protocol import Registry
from registry.references import Reference
from serving.deployment import Deployment
from serving.state import Desired

__all__ = ["Declared", "resolve_desired"]


@dataclass(frozen=True, slots=True)
class Declared:
    """A deployment as it is stored: its declaration and the revision of it."""

    deployment: Deployment
    revision: int
    removed: bool = False


def resolve_desired(registry: Registry, declared: Declared) -> Desired:
    """Resolve all references of a declaration; a target is None while its alias does not exist."""
    deployment = declared.deployment
    intent = _intent(registry, deployment.name)

    def target(served: str, text: str) -> Target | None:
        return _target(registry, deployment.name, declared.revision, served, text)

    return Desired(
        deployment=deployment.name,
        base=target("", deployment.base),
        serves={served: target(served, text) for served, text in deployment.serves.items()},
        engine=deployment.engine.to_text(intent.restarts),
        replicas=deployment.replicas,
        allow_downtime=deployment.allow_downtime,
        paused=deployment.paused or intent.paused,
        removed=declared.removed,
    )


def _intent(registry: Registry, deployment: str) -> Intent:
    """What people told the deployment; nothing while the registry does not know of it."""
    try:
        return registry.operations.intent(deployment)
    except NotFound:
        return Intent(deployment)


def _target(registry: Registry, deployment: str, revision: int, served: str, text: str) -> Target | None:
    reference = Reference.parse(text)
    try:
        if reference.alias is not None:
            alias = registry.promotions.get(reference.name, reference.alias)
            number, digest, generation = alias.version, alias.digest, alias.generation
        else:
            version = registry.catalog.resolve(text)
            number, digest, generation = version.number, version.digest, 0
    except (AliasNotFound, ArtifactNotFound, VersionNotFound):
        return None
    return Target(deployment, revision, served, reference.name, reference.alias, generation, number, digest)
