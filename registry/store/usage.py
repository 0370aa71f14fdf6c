"""Who needs a version: what deletion, collection and rollback must ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.errors import InvalidReference
from registry.references import Reference
from registry.values import Version

_USING = sql("""
    SELECT deployment FROM route WHERE digest = :digest OR previous_digest = :digest
    UNION SELECT deployment FROM rollout WHERE digest = :digest AND ended_at IS NULL
""")
_NAMES = sql("""
    SELECT a.name, v.number FROM version v JOIN artifact a ON a.id = v.artifact_id
    WHERE v.digest = :digest AND v.deleted_at IS NULL
""")
_DECLARED = sql("SELECT name, body FROM app_object WHERE kind = 'deployment'")
_GATES = sql("SELECT name, body FROM app_object WHERE kind = 'gate'")
_LIVED = sql("""
    SELECT DISTINCT generation, state, past FROM rollout WHERE artifact = :artifact AND alias = :alias
""")


def deployments_using(reader: Transaction, digest: str) -> list[str]:
    """Names of the deployments that need a content.

    They route to it, keep it for a rollback, are rolling it out, or name one of its versions in their
    declaration. What follows an alias needs what the alias holds, which is the alias's own to say.
    """
    found = {deployment for (deployment,) in reader.all(_USING, digest=digest)}
    names = {(name, number) for name, number in reader.all(_NAMES, digest=digest)}
    for deployment, body in reader.all(_DECLARED):
        if any(_names(each, names, digest) for each in _followed(json.loads(body))):
            found.add(deployment)
    return sorted(found)


def gates_judging_on(reader: Transaction, version: Version) -> list[str]:
    """Names of the gates whose rule asks what was measured on a version: without it none could pass again."""
    names = {(version.artifact, version.number)}
    found = set()
    for gate, body in reader.all(_GATES):
        rule = json.loads(body).get("rule")
        data = _read(rule.get("on")) if isinstance(rule, dict) else ()
        if any(_names(each, names, version.digest) for each in data):
            found.add(gate)
    return sorted(found)


def _followed(declaration: dict[str, object]) -> Iterator[Reference]:
    """What a declaration follows. One that this version cannot read follows nothing that is known here."""
    serves = declaration.get("serves")
    texts = serves.values() if isinstance(serves, dict) else ()
    for text in chain([declaration.get("base")], texts):
        yield from _read(text)


def _read(text: object) -> Iterator[Reference]:
    """The reference that a declaration holds, if it holds one."""
    with suppress(InvalidReference):
        yield Reference.parse(str(text))


def _names(reference: Reference, names: set[tuple[str, int]], digest: str) -> bool:
    return (reference.name, reference.version) in names or reference.digest == digest


def lived_generations(reader: Transaction, artifact: str, alias: str) -> set[int] | None:
    """Generations of an alias that serving brought live; None where nothing is deployed that follows it."""
    found = reader.all(_LIVED, artifact=artifact, alias=alias)
    if all(past for _, _, past in found):
        return None
    return {generation for generation, state, _ in found if state == "live"}
