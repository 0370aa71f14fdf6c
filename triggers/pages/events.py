"""Events as they happen, and one event with all that it led to."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from registry.deliveries import DeliveryState
from registry.events import EventType
from registry.http.authorising import Asker
from registry.pages.rendering import Pages
from registry.pages.tones import RUN_TONES
from registry.pages.visiting import visitor
from registry.protocol import Registry
from triggers.pages.following import causes, effects, rollouts
from triggers.pages.wording import DELIVERY_TONES, families, last_line, remark, tone

_PAGE = 50
_MOST_DELIVERIES = 200
_MOST_DEAD = 100
_LONGEST = 200
_Visitor = Annotated[Asker, Depends(visitor)]
_Text = Annotated[str, Query(max_length=_LONGEST)]


def add_events(router: APIRouter, pages: Pages) -> None:
    @router.get("/events")
    def list_(
        request: Request,
        who: _Visitor,
        type: _Text = "",
        of: _Text = "",
        actor: _Text = "",
        before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    ) -> Response:
        registry, of, actor = who.registry, of.strip(), actor.strip()
        found = registry.events.find(
            type=_beginning(type), key=of or None, actor=actor or None, before=before, limit=_PAGE + 1
        )
        more = found[_PAGE - 1].sequence if len(found) > _PAGE else None
        filters = {"type": type, "of": of, "actor": actor}
        return pages.show(
            request,
            "events.html",
            who,
            events=found[:_PAGE],
            filters=filters,
            query=urlencode({name: value for name, value in filters.items() if value}),
            watched=_watched(type),
            types=[each.value.removeprefix("podium.") for each in EventType],
            families=families(),
            before=before,
            more=more,
            dead=count_dead(registry),
            tone=tone,
            remark=remark,
        )

    @router.get("/events/{event_id}")
    def one(request: Request, who: _Visitor, event_id: str) -> Response:
        registry = who.registry
        event = registry.events.get(event_id)
        return pages.show(
            request,
            "event.html",
            who,
            event=event,
            data=json.dumps(dict(event.data), indent=2, ensure_ascii=False),
            causes=causes(registry, event),
            effects=effects(registry, event),
            rollouts=rollouts(registry, event),
            deliveries=registry.deliveries.find(event=event.id, limit=_MOST_DELIVERIES),
            tone=tone,
            remark=remark,
            last_line=last_line,
            delivery_tones=DELIVERY_TONES,
            run_tones=RUN_TONES,
        )


def count_dead(registry: Registry) -> str:
    """How many dead letters there are, as a page says it; "" for none."""
    count = len(registry.deliveries.find(state=DeliveryState.DEAD, limit=_MOST_DEAD))
    return f"{_MOST_DEAD - 1}+" if count == _MOST_DEAD else str(count or "")


def _beginning(type: str) -> str:
    """The beginning of the types that are meant by ``run`` or by ``run.failed``."""
    if not type:
        return ""
    return f"podium.{type}" if "." in type else f"podium.{type}."


def _watched(type: str) -> list[str]:
    family = type.partition(".")[0]
    return [family] if family in families() else list(families())
