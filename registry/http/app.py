"""The app factory: the API over a registry, and the routers that rooms hang on it by entry point."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import entry_points, version
from typing import Any

from fastapi import APIRouter, FastAPI

from registry.errors import PodiumError
from registry.http.allowance import Allowance
from registry.http.answering import add_handlers
from registry.http.content import add_content
from registry.http.housekeeping import keep_house
from registry.http.login import add_login
from registry.http.metrics import add_metrics
from registry.http.performing import Performer
from registry.http.routes import add_operations
from registry.http.session import add_session
from registry.http.shell import Failures, Shell
from registry.http.stream import Tail
from registry.store.stored import StoredRegistry
from registry.wire import headers

log = logging.getLogger(__name__)

#: Entry points that are called with the app, to add pages: ``def add(app: FastAPI) -> None``.
GROUP = "podium.routes"

_ABOUT = """
The registry of podium over HTTP: all that the command line does.

Send a token as `Authorization: Bearer podium_...`; `podium token add NAME --role ROLE` makes one. Errors are
`application/problem+json` (RFC 9457) with the `code` and `exit_status` of the command line. A write that has
an `Idempotency-Key` is done once, however often it is sent.
"""


def create_app(
    registry: StoredRegistry,
    *,
    pages: bool = True,
    failures: Failures | None = None,
    requests: Allowance | None = None,
) -> FastAPI:
    """The app that serves a registry. ``app.state.performer`` and ``app.state.tail`` are for pages to use.

    ``pages`` says whether the rooms' routers are added; ``failures`` how many wrong tokens an address may
    show, ``requests`` how much may be asked with one token. The registry is the caller's to close.
    """
    performer = Performer(registry, requests)
    tail = Tail(lambda: performer.registry)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tail.start()
        keeping = asyncio.create_task(keep_house(performer))
        try:
            yield
        finally:
            keeping.cancel()
            await tail.stop()
            await asyncio.to_thread(performer.transactions.close)

    app = FastAPI(
        title="podium",
        version=version("podium"),
        description=_ABOUT,
        docs_url=f"{headers.PREFIX}/docs",
        openapi_url=f"{headers.PREFIX}/openapi.json",
        redoc_url=None,
        redirect_slashes=False,  # `/runs/` asks for the run without a name, not for the list of all
        lifespan=lifespan,
    )
    app.state.performer, app.state.tail = performer, tail
    app.add_middleware(Shell, failures=failures)
    add_handlers(app)
    router = APIRouter(prefix=headers.PREFIX, responses=_PROBLEMS)
    add_session(router, performer, tail)
    add_content(router, performer)
    add_operations(router, performer)
    app.include_router(router)
    _describe_problems(app)
    add_metrics(app, performer)
    add_login(app, performer)
    if pages:
        _add_pages(app)
    return app


_PROBLEMS: dict[int | str, dict[str, object]] = {
    status: {
        "description": text,
        "content": {headers.PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, text in (
        (401, "No token, or none that is good now"),
        (403, "The role or scope of the token does not allow it"),
        (404, "There is nothing of that name"),
        (409, "A rule said no, and nothing was changed"),
        (412, "The alias is not at the generation that `If-Match` names"),
        (413, "The body is too large"),
        (422, "What was given cannot be used"),
        (429, "Too much was asked in too short a time"),
        (503, "A part cannot be reached"),
    )
}


_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "exit_status"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:podium:error:gate_failed"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, and to what."},
        "code": {"type": "string", "examples": ["gate_failed"]},
        "exit_status": {"type": "integer", "description": "1 refused, 2 bad input, 3 unreachable"},
        "remedy": {"type": "string", "description": "What to do next."},
        "details": {"type": "object"},
    },
}


def _describe_problems(app: FastAPI) -> None:
    described = app.openapi

    def openapi() -> dict[str, Any]:
        document = described()
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = _PROBLEM
        bearer = {"type": "http", "scheme": "bearer", "bearerFormat": "podium_ID_SECRET"}
        components["securitySchemes"] = {"token": bearer}
        document["security"] = [{"token": []}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_pages(app: FastAPI) -> None:
    for entry in entry_points(group=GROUP):
        try:
            entry.load()(app)
        except (ImportError, PodiumError) as error:  # the API goes on without them
            log.warning("the pages of '%s' are left out: %s", entry.name, error)
