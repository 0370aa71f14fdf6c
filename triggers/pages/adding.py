"""The pages of events, as the app gets them by entry point."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI

from registry.pages.rendering import Pages, Section, add_section
from registry.pages.visiting import PageRoute
from triggers.pages.deliveries import add_deliveries
from triggers.pages.events import add_events
from triggers.pages.subscriptions import add_subscriptions


def add(app: FastAPI) -> None:
    """Add the pages."""
    add_section(app, Section(4, "Events", "/events"))
    router = APIRouter(route_class=PageRoute, include_in_schema=False)
    pages = Pages(Path(__file__).parent / "templates")
    # Of two paths that one address could mean, the more exact one stands first.
    add_deliveries(router, pages)
    add_subscriptions(router, pages)
    add_events(router, pages)
    app.include_router(router)
