"""Deliveries in the browser: dead letters, one delivery until it is done, and trying again by button."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.deliveries import OPEN, Delivery, DeliveryState
from registry.http.authorising import Asker
from registry.http.performing import Asked, Performer
from registry.identity.roles import TeamRole
from registry.pages.rendering import Pages
from registry.pages.visiting import visitor
from registry.store.stored import StoredRegistry
from triggers.pages.events import count_dead
from triggers.pages.wording import DELIVERY_TONES, last_line, remark, tone

_MOST = 100
_RETRY = "deliveries.retry"
_Visitor = Annotated[Asker, Depends(visitor)]


def add_deliveries(router: APIRouter, pages: Pages) -> None:
    @router.get("/events/dead")
    def dead(request: Request, who: _Visitor) -> Response:
        found = who.registry.deliveries.find(state=DeliveryState.DEAD, limit=_MOST)
        return pages.show(
            request,
            "dead.html",
            who,
            deliveries=found,
            is_cut=len(found) == _MOST,
            dead=count_dead(who.registry),
            may_retry=who.may(_RETRY, TeamRole.PROMOTER),
            last_line=last_line,
        )

    @router.get("/events/deliveries/{delivery_id}")
    def one(request: Request, who: _Visitor, delivery_id: str) -> Response:
        found = who.registry.deliveries.get(delivery_id)
        return pages.show(
            request,
            "delivery.html",
            who,
            delivery=found,
            is_open=found.state in OPEN,
            tones=DELIVERY_TONES,
            event_tone=tone,
            remark=remark,
            may_retry=who.may(_RETRY, TeamRole.PROMOTER),
        )

    @router.post("/events/deliveries/{delivery_id}/retry")
    def retry(request: Request, delivery_id: str) -> Response:
        retried: list[Delivery] = []

        def act(registry: StoredRegistry) -> bytes:
            retried.append(registry.deliveries.retry(delivery_id))
            return b""

        performer: Performer = request.app.state.performer
        asked = Asked(_RETRY, TeamRole.PROMOTER, {"delivery_id": delivery_id})
        performer.perform(request, asked, act)
        return RedirectResponse(f"/events/deliveries/{retried[-1].id}", 303)
