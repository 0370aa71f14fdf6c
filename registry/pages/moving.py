"""Promote and roll back by button: a page that shows the plan and asks once, and the move itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.errors import AliasMoved, InvalidRequest, Refused
from registry.http.authorising import Asker
from registry.http.performing import Act, Asked, Performer
from registry.identity.roles import TeamRole
from registry.pages.approving import may_approve, needed_role
from registry.pages.plan import Plan, to_promote, to_roll_back
from registry.pages.rendering import Pages
from registry.pages.visiting import form, visitor
from registry.references import parse_version_number
from registry.store.stored import StoredRegistry
from registry.values import Promotion
from registry.wire.problems import status_of

_Visitor = Annotated[Asker, Depends(visitor)]
_Form = Annotated[dict[str, str], Depends(form)]


def add_moving(router: APIRouter, pages: Pages) -> None:
    def show(request: Request, who: Asker, plan: Plan, problem: Refused | None = None) -> Response:
        status = status_of(problem) if problem else 200
        name, role = plan.target.artifact, needed_role(who.registry, plan.target.artifact, plan.alias)
        may = role is not None and may_approve(who, name, role)
        return pages.show(request, "plan.html", who, status, plan=plan, problem=problem, may_approve=may)

    @router.get("/artifacts/{name}/promote")
    def ask_to_promote(request: Request, who: _Visitor, name: str, alias: str, version: str) -> Response:
        return show(request, who, to_promote(who, name, alias.strip(), parse_version_number(version)))

    @router.post("/artifacts/{name}/promote")
    def promote(request: Request, who: _Visitor, name: str, fields: _Form) -> Response:
        alias, number = _field(fields, "alias"), parse_version_number(_field(fields, "version"))
        arguments = {
            "reference": f"{name}:v{number}",
            "alias": alias,
            "expect_generation": _generation(fields),
            "reason": fields.get("reason", ""),
        }
        try:
            moved = _perform(request, "promote", arguments, "reference")
        except Refused as refusal:
            return show(request, who, to_promote(who, name, alias, number), refusal)
        return _follow(moved)

    @router.get("/artifacts/{name}/rollback")
    def ask_to_roll_back(
        request: Request, who: _Visitor, name: str, alias: str, to: str | None = None
    ) -> Response:
        number = parse_version_number(to) if to else None
        return show(request, who, to_roll_back(who, name, alias, number))

    @router.post("/artifacts/{name}/rollback")
    def roll_back(request: Request, who: _Visitor, name: str, fields: _Form) -> Response:
        alias, number = _field(fields, "alias"), parse_version_number(_field(fields, "version"))
        arguments = {"name": name, "alias": alias, "to": number, "reason": fields.get("reason", "")}
        try:
            moved = _perform(request, "rollback", arguments, "name", _generation(fields))
        except Refused as refusal:
            return show(request, who, to_roll_back(who, name, alias, number), refusal)
        return _follow(moved)

    @router.post("/artifacts/{name}/release")
    def release(request: Request, name: str, fields: _Form) -> Response:
        alias = _field(fields, "alias")
        _perform_act(
            request,
            "release",
            {"name": name, "alias": alias},
            "name",
            lambda registry: str(registry.promotions.release(name, alias).version).encode(),
        )
        return RedirectResponse(f"/artifacts/{name}/aliases/{alias}", 303)


def _perform(
    request: Request, method: str, arguments: dict[str, Any], artifact: str, expected: int | None = None
) -> Promotion:
    """Move an alias; ``expected`` is the generation at which the plan was made, where the move cannot say."""
    moved: list[Promotion] = []

    def act(registry: StoredRegistry) -> bytes:
        if expected is not None:
            _check_generation(registry, arguments["name"], arguments["alias"], expected)
        moved.append(getattr(registry.promotions, method)(**arguments))
        return b""

    _perform_act(request, method, arguments, artifact, act)
    return moved[-1]


def _perform_act(request: Request, method: str, arguments: dict[str, Any], artifact: str, act: Act) -> None:
    performer: Performer = request.app.state.performer
    performer.perform(
        request, Asked(f"promotions.{method}", TeamRole.PROMOTER, arguments, artifact=artifact), act
    )


def _check_generation(registry: StoredRegistry, name: str, alias: str, expected: int) -> None:
    held = registry.promotions.get(name, alias)
    if held.generation != expected:
        raise AliasMoved(
            f"'{name}:{alias}' has moved to v{held.version} since this plan was made.",
            remedy="Look at the plan as it is now, and decide again.",
        )


def _follow(moved: Promotion) -> Response:
    return RedirectResponse(f"/artifacts/{moved.artifact}/aliases/{moved.alias}/{moved.generation}", 303)


def _field(fields: dict[str, str], name: str) -> str:
    if not fields.get(name):
        raise InvalidRequest(f"The form says no {name}.", remedy="Use podium's own pages.")
    return fields[name]


def _generation(fields: dict[str, str]) -> int:
    text = _field(fields, "generation")
    if not (text.isdecimal() and len(text) <= 18):
        raise InvalidRequest("The form says no generation.", remedy="Use podium's own pages.")
    return int(text)
