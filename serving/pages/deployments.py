"""Deployments in the browser: what is asked for, what is live, and what a person may tell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.deployments import ReplicaStatus
from registry.errors import InvalidRequest
from registry.http.authorising import Asker
from registry.http.performing import Asked, Performer
from registry.identity.roles import TeamRole
from registry.pages.rendering import Pages, Section, add_section
from registry.pages.visiting import PageRoute, form, visitor
from registry.protocol import Registry
from serving.overview import Overview, State, overview, overviews

__all__ = ["add", "traffic"]

_Visitor = Annotated[Asker, Depends(visitor)]
_Form = Annotated[dict[str, str], Depends(form)]
_Order = Callable[[Registry, str, Mapping[str, str]], object]

_TONES = {
    State.LIVE: "good",
    State.ROLLING: "busy",
    State.FAILED: "bad",
    State.DOWN: "bad",
    State.PAUSED: "warn",
    State.WAITING: "warn",
    State.STOPPED: "warn",
    State.UNLED: "warn",
    State.NEW: "",
}

#: What a form may tell a deployment, by the last part of its address.
_ORDERS: Mapping[str, _Order] = {
    "pause": lambda registry, name, fields: registry.operations.pause(name, fields.get("reason", "")),
    "resume": lambda registry, name, _: registry.operations.resume(name),
    "restart": lambda registry, name, _: registry.operations.restart(name),
    "unblock": lambda registry, name, fields: registry.operations.unblock(name, fields.get("digest", "")),
}


def add(app: FastAPI) -> None:
    """Add the pages."""
    add_section(app, Section(3, "Deployments", "/deployments"))
    router = APIRouter(route_class=PageRoute, include_in_schema=False)
    pages = Pages(Path(__file__).parent / "templates")
    _add_looking(router, pages)
    _add_telling(router)
    app.include_router(router)


def _add_looking(router: APIRouter, pages: Pages) -> None:
    @router.get("/deployments")
    def list_(request: Request, who: _Visitor) -> Response:
        return pages.show(
            request, "deployments.html", who, deployments=overviews(who.registry), tones=_TONES, ready=_ready
        )

    @router.get("/deployments/{name}")
    def one(request: Request, who: _Visitor, name: str) -> Response:
        seen = overview(who.registry, name)
        return pages.show(
            request,
            "deployment.html",
            who,
            seen=seen,
            tones=_TONES,
            ready=_ready(seen),
            replicas=_shown(seen),
            traffic=traffic(seen.replicas),
            may_tell=who.may("operations.pause", TeamRole.PROMOTER),
        )


def _add_telling(router: APIRouter) -> None:
    @router.post("/deployments/{name}/{order}")
    def tell(request: Request, name: str, order: str, fields: _Form) -> Response:
        if order not in _ORDERS:
            raise InvalidRequest("A deployment cannot be told that.", remedy="Use podium's own pages.")
        arguments: dict[str, Any] = {"deployment": name, **fields}

        def act(registry: Registry) -> bytes:
            _ORDERS[order](registry, name, fields)
            return b""

        performer: Performer = request.app.state.performer
        performer.perform(request, Asked(f"operations.{order}", TeamRole.PROMOTER, arguments), act)
        return RedirectResponse(f"/deployments/{name}", 303)


def traffic(replicas: tuple[ReplicaStatus, ...]) -> list[tuple[str, int]]:
    """Answers under way by version, over all replicas, the busiest first."""
    total: Counter[str] = Counter()
    for replica in replicas:
        total.update(replica.in_flight)
    return sorted(total.items(), key=lambda each: (-each[1], each[0]))


def _shown(seen: Overview) -> list[ReplicaStatus]:
    """Absent replicas are places in which others may be started."""
    return [each for each in seen.replicas if each.phase != "absent" or each.detail]


def _ready(seen: Overview) -> str:
    return f"{seen.ready} of {seen.wanted_replicas}"
