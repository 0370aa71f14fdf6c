"""Subscriptions and triggers in the browser: what each waits for, does, and has before it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from registry.apps.wording import object_in_words
from registry.http.authorising import Asker
from registry.pages.rendering import Pages
from registry.pages.visiting import visitor
from registry.protocol import Registry
from triggers.consumer import lease_name
from triggers.pages.events import count_dead
from triggers.subscription import Subscription
from triggers.trigger import Trigger


def add_subscriptions(router: APIRouter, pages: Pages) -> None:
    @router.get("/events/subscriptions")
    def subscriptions(request: Request, who: Annotated[Asker, Depends(visitor)]) -> Response:
        registry = who.registry
        return pages.show(
            request,
            "subscriptions.html",
            who,
            subscriptions=registry.deliveries.subscriptions(),
            described=_described(registry),
            served={lease.name for lease in registry.leases.held(lease_name(""))},
            lease_name=lease_name,
            dead=count_dead(registry),
        )


def _described(registry: Registry) -> dict[str, str]:
    """What is deployed under each name, in words."""
    return {
        f"{each.app}/{each.name}": object_in_words(each.kind, each.name, each.body)
        for kind in (Trigger.deployable, Subscription.deployable)
        for each in registry.apps.objects(kind)
    }
