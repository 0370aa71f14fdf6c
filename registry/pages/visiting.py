"""Who looks at a page, and what they see instead when they may not, or when there is nothing to see."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from registry.errors import InvalidRequest, PodiumError, Unauthorized
from registry.http.answering import invalid_request
from registry.http.authorising import COOKIE, Asker
from registry.http.performing import Performer
from registry.identity.roles import TeamRole
from registry.pages.rendering import Pages
from registry.wire.problems import status_of

_LARGEST_FORM = 64 * 1024  # bytes
_pages = Pages()


def visitor(request: Request) -> Asker:
    """Who asks for a page. It reads the database: call it in a thread.

    Raises:
        Unauthorized, Forbidden: they may see none.
    """
    performer: Performer = request.app.state.performer
    # Read before the page's queries: what happens while they run is told again, and not missed.
    request.state.newest = request.app.state.tail.newest
    who = performer.asker(request)
    who.require("pages", TeamRole.VIEWER)
    return who


async def form(request: Request) -> dict[str, str]:
    """The fields of a form that was sent; of those of one name the last. To be used with ``Depends``."""
    body = await request.body()
    if len(body) > _LARGEST_FORM:
        raise InvalidRequest("The form is too large.", remedy="Send less text.")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=50)
    except ValueError as error:
        raise InvalidRequest("The form cannot be read.", remedy="Use podium's own pages.") from error
    return {name: values[-1] for name, values in fields.items()}


class PageRoute(APIRoute):
    """A route whose errors are pages, too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized as error:
                return _to_sign_in(request, error)
            except RequestValidationError as error:
                return problem_page(request, invalid_request(error))
            except PodiumError as error:
                return problem_page(request, error)

        return handler


def _to_sign_in(request: Request, error: Unauthorized) -> Response:
    if request.cookies.get(COOKIE):  # a token that is not good: 401, so that guesses are counted
        page: Response = _pages.show(request, "sign_in.html", None, 401, problem=error, then=_here(request))
    else:
        page = RedirectResponse(f"/sign-in?then={quote(_here(request))}", 303)
    if "hx-request" in request.headers:
        page = Response(status_code=page.status_code if page.status_code == 401 else 204)
        page.headers["hx-redirect"] = "/sign-in"
    return page


def _here(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return request.url.path + query if request.method == "GET" else "/"


def problem_page(request: Request, error: PodiumError, status: int | None = None) -> Response:
    """An error as a page. ``status`` is that of the answer, unless it is the error's own."""
    return _pages.show(request, "problem.html", None, status or status_of(error), problem=error)
