"""The registry's pages, as the app gets them by entry point."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from registry.pages.access import add_access
from registry.pages.approving import add_approving
from registry.pages.artifacts import add_artifacts
from registry.pages.comparing import add_comparing
from registry.pages.live import add_live
from registry.pages.moving import add_moving
from registry.pages.promotions import add_promotions
from registry.pages.rendering import Pages, Section, add_section
from registry.pages.signing_in import add_signing_in
from registry.pages.versions import add_versions
from registry.pages.visiting import PageRoute, problem_page

_STATIC = Path(__file__).parent / "static"


def add(app: FastAPI) -> None:
    """Add the pages of the registry, and the files that all rooms' pages use."""
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.state.problem_page = problem_page  # for what no route of the pages answers
    add_section(app, Section(1, "Artifacts", "/artifacts"))
    add_section(app, Section(5, "Access", "/access"))
    router = APIRouter(route_class=PageRoute, include_in_schema=False)
    pages = Pages()

    @router.get("/")
    def first() -> Response:
        return RedirectResponse("/artifacts", 303)

    add_signing_in(router, pages)
    add_live(router)
    add_artifacts(router, pages)
    add_versions(router, pages)
    add_comparing(router, pages)
    add_moving(router, pages)
    add_promotions(router, pages)
    add_approving(router)
    add_access(router, pages)
    app.include_router(router)
