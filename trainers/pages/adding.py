"""The pages of runs, as the app gets them by entry point."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI

from registry.pages.rendering import Pages, Section, add_section
from registry.pages.visiting import PageRoute
from trainers.pages.looking import add_looking
from trainers.pages.telling import add_telling


def add(app: FastAPI) -> None:
    """Add the pages."""
    add_section(app, Section(2, "Runs", "/runs"))
    router = APIRouter(route_class=PageRoute, include_in_schema=False)
    pages = Pages(Path(__file__).parent / "templates")
    add_looking(router, pages)
    add_telling(router)
    app.include_router(router)
