"""The page for who has no session: it takes a token, which a script hands to ``/login``."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from registry.pages.rendering import Pages


def add_signing_in(router: APIRouter, pages: Pages) -> None:
    @router.get("/sign-in")
    def sign_in(request: Request, then: str = "/") -> Response:
        return pages.show(request, "sign_in.html", None, problem=None, then=_own(then))


def _own(address: str) -> str:
    """The address if it is one of ours: nobody is sent to another site after signing in."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_path else "/"
