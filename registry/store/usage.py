"""Who needs a version: what deletion, collection and rollback must ask."""

from __future__ import annotations

from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.values import Version

_USING = sql("""
    SELECT deployment FROM route WHERE ref = :ref OR previous_ref = :ref
    UNION
    SELECT deployment FROM rollout WHERE artifact = :artifact AND version = :version AND ended_at IS NULL
    ORDER BY deployment
""")
_LIVED = sql("""
    SELECT DISTINCT generation, state, past FROM rollout WHERE artifact = :artifact AND alias = :alias
""")


def deployments_using(reader: Transaction, version: Version) -> list[str]:
    """Names of the deployments whose routes or running rollouts use a version."""
    found = reader.all(_USING, ref=version.ref, artifact=version.artifact, version=version.number)
    return [deployment for (deployment,) in found]


def lived_generations(reader: Transaction, artifact: str, alias: str) -> set[int] | None:
    """Generations of an alias that serving brought live; None where nothing is deployed that follows it."""
    found = reader.all(_LIVED, artifact=artifact, alias=alias)
    if all(past for _, _, past in found):
        return None
    return {generation for generation, state, _ in found if state == "live"}
