"""Approvals in the browser: which are waited for, and giving one by button."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.errors import Forbidden
from registry.gates import Approved, Gate
from registry.http.authorising import Asker
from registry.http.performing import Asked, Performer
from registry.identity.roles import TeamRole
from registry.pages.visiting import form
from registry.protocol import Registry
from registry.references import parse_version_number
from registry.store.stored import StoredRegistry
from registry.values import Version

_MOST = 20  # artifacts of one gate that are looked at
_Form = Annotated[dict[str, str], Depends(form)]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The newest version of an artifact, which may not become the alias until somebody approves it."""

    version: Version
    alias: str
    role: TeamRole
    others: int  # gates of other kinds that do not pass either
    may_approve: bool


def add_approving(router: APIRouter) -> None:
    @router.post("/artifacts/{name}/approve")
    def approve(request: Request, name: str, fields: _Form) -> Response:
        alias, number = fields.get("alias", ""), parse_version_number(fields.get("version", ""))
        reference, reason = f"{name}:v{number}", fields.get("reason", "")

        def act(registry: StoredRegistry) -> bytes:
            return registry.identity.approve(reference, alias, reason=reason).digest.encode()

        arguments = {"reference": reference, "alias": alias, "reason": reason}
        asked = Asked("identity.approve", TeamRole.PROMOTER, arguments, artifact="reference")
        performer: Performer = request.app.state.performer
        performer.perform(request, asked, act)
        return RedirectResponse(f"/artifacts/{name}/promote?alias={alias}&version=v{number}", 303)


def waiting(who: Asker) -> list[Waiting]:
    """Where a gate waits for somebody's approval of an artifact's newest version."""
    found = [
        _waiting(who, gate, gate.rule, artifact.name)
        for gate in _gates(who.registry)
        if isinstance(gate.rule, Approved)
        for artifact in who.registry.catalog.artifacts(gate.artifact, limit=_MOST)
    ]
    return [each for each in found if each is not None]


def needed_role(registry: Registry, name: str, alias: str) -> TeamRole | None:
    """The highest role whose approval a gate of the alias asks for; None where none does."""
    roles = [
        TeamRole(gate.rule.role)
        for gate in _gates(registry)
        if isinstance(gate.rule, Approved) and gate.alias == alias and gate.guards(name)
    ]
    return max(roles, key=list(TeamRole).index, default=None)


def may_approve(who: Asker, name: str, role: TeamRole) -> bool:
    """Whether this person's approval would satisfy a gate that asks for the role."""
    try:
        who.require("identity.approve", TeamRole.PROMOTER)
        who.require_for("identity.approve", {"reference": f"{name}:v1"}, "reference")
    except Forbidden:
        return False
    return who.token.role.covers(role)


def _gates(registry: Registry) -> list[Gate]:
    return [Gate.from_json(each.name, each.body) for each in registry.apps.objects(Gate.deployable)]


def _waiting(who: Asker, gate: Gate, rule: Approved, name: str) -> Waiting | None:
    newest = next(iter(who.registry.catalog.versions(name, limit=1)), None)
    if newest is None or gate.alias in newest.aliases:
        return None
    missing = {
        verdict.gate
        for verdict in who.registry.promotions.judge(newest.ref, gate.alias)
        if not verdict.passed
    }
    if gate.name not in missing:
        return None
    role = TeamRole(rule.role)
    return Waiting(newest, gate.alias, role, len(missing) - 1, may_approve(who, name, role))
