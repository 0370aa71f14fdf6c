"""From a link to a session: a browser gets a cookie for a token, and no script can read it."""

from __future__ import annotations

import secrets
import threading
import time

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.errors import Unauthorized
from registry.http.authorising import COOKIE
from registry.http.performing import Performer
from registry.identity.roles import TeamRole
from registry.identity.tokens import browser_of

_LINK_SECONDS = 15 * 60.0
_SESSION_DAYS = 30


class Links:
    """Links that log in once. They are kept in memory alone, and end with the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def make(self) -> str:
        """The secret part of a new link."""
        key = secrets.token_urlsafe(24)
        with self._lock:
            self._until[key] = time.monotonic() + _LINK_SECONDS
        return key

    def use(self, key: str) -> bool:
        """Whether the link is good; it is not a second time."""
        with self._lock:
            return self._until.pop(key, 0.0) > time.monotonic()


def add_login(app: FastAPI, performer: Performer) -> None:
    """Add ``/login`` and ``/logout``; ``app.state.links`` makes links."""
    links = app.state.links = Links()

    @app.get("/login", include_in_schema=False)
    def login(request: Request, key: str = "") -> Response:
        if not links.use(key):
            raise Unauthorized(
                "This link has been used, or is too old.",
                remedy="Start 'podium up' again for a new one, or log in with a token.",
            )
        name = browser_of(performer.registry.origin.actor)
        issued = performer.registry.identity.issue(name, TeamRole.ADMIN, days=_SESSION_DAYS)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            issued.secret,
            max_age=_SESSION_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    @app.post("/login", include_in_schema=False)
    def with_token(request: Request) -> Response:
        """A token in ``Authorization`` becomes a cookie: for who was given one."""
        who = performer.asker(request)
        answer = Response(status_code=204)
        answer.set_cookie(
            COOKIE,
            request.headers.get("authorization", "").partition(" ")[2] or request.cookies.get(COOKIE, ""),
            max_age=_SESSION_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        answer.headers["podium-actor"] = who.token.actor
        return answer

    @app.post("/logout", include_in_schema=False)
    def logout(request: Request) -> Response:
        performer.asker(request)
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE)
        return answer
