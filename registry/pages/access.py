"""Who may do what, in the browser: tokens, protected aliases, approvals, the trail of writes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.errors import InvalidRequest
from registry.http.authorising import Asker
from registry.http.performing import Act, Asked, Performer
from registry.identity.roles import TeamRole
from registry.identity.tokens import IssuedToken
from registry.pages.approving import waiting
from registry.pages.rendering import Pages
from registry.pages.visiting import form, visitor
from registry.store.stored import StoredRegistry

_LINES = 50
_Visitor = Annotated[Asker, Depends(visitor)]
_Form = Annotated[dict[str, str], Depends(form)]


def add_access(router: APIRouter, pages: Pages) -> None:
    @router.get("/access")
    def access(
        request: Request, who: _Visitor, before: Annotated[int | None, Query(ge=1, le=2**62)] = None
    ) -> Response:
        return _show(request, pages, who, before=before)

    @router.post("/access/tokens")
    def make(request: Request, who: _Visitor, fields: _Form) -> Response:
        name, role = fields.get("name", ""), _role(fields)
        pattern, days = fields.get("pattern") or "*", _days(fields)
        made: list[IssuedToken] = []

        def act(registry: StoredRegistry) -> bytes:
            made.append(registry.identity.issue(name, role, pattern=pattern, days=days))
            return b""

        arguments = {"name": name, "role": role, "pattern": pattern, "days": days}
        _perform(request, Asked("identity.issue", TeamRole.ADMIN, arguments, secret=True), act)
        # Not behind a redirect: the secret is in this answer alone, which no cache keeps.
        return _show(request, pages, who, made=made[-1])

    @router.post("/access/tokens/{token}/revoke")
    def revoke(request: Request, token: str) -> Response:
        def act(registry: StoredRegistry) -> bytes:
            return registry.identity.revoke(token).id.encode()

        _perform(request, Asked("identity.revoke", TeamRole.ADMIN, {"token": token}), act)
        return RedirectResponse("/access", 303)


def _show(
    request: Request, pages: Pages, who: Asker, *, before: int | None = None, made: IssuedToken | None = None
) -> Response:
    identity = who.registry.identity
    is_admin = who.may("identity.audit", TeamRole.ADMIN)
    lines = identity.audit(before=before, limit=_LINES + 1) if is_admin else []
    return pages.show(
        request,
        "access.html",
        who,
        made=made,
        waiting=waiting(who),
        is_admin=is_admin,
        tokens=identity.tokens() if who.may("identity.tokens", TeamRole.PROMOTER) else None,
        protections=identity.protections(),
        roles=list(TeamRole),
        lines=lines[:_LINES],
        before=before,
        more=lines[_LINES - 1].number if len(lines) > _LINES else None,
    )


def _perform(request: Request, asked: Asked, act: Act) -> None:
    performer: Performer = request.app.state.performer
    performer.perform(request, asked, act)


def _role(fields: dict[str, str]) -> TeamRole:
    try:
        return TeamRole(fields.get("role", ""))
    except ValueError as error:
        raise InvalidRequest(
            f"'{fields.get('role', '')[:40]}' is no role.", remedy=f"Roles are {', '.join(TeamRole)}."
        ) from error


def _days(fields: dict[str, str]) -> float | None:
    """For how many days; None: until it is revoked."""
    text = fields.get("days", "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise InvalidRequest(f"'{text[:40]}' is no number of days.", remedy="Give for example 30.") from error
