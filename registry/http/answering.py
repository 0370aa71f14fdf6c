"""Answers: JSON with an ETag, and errors as problem+json. Every error of ours and of others' passes here."""

from __future__ import annotations

import hashlib
import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from registry.errors import AliasMoved, InvalidInput, InvalidRequest, NotFound, PodiumError, TooManyRequests
from registry.wire import headers
from registry.wire.problems import status_of, to_problem

log = logging.getLogger(__name__)

_JSON = "application/json"


def json_answer(body: bytes, request: Request, status: int = 200) -> Response:
    """A JSON answer; 304 where the asker has the same already."""
    if request.method != "GET":
        return Response(body, status, media_type=_JSON)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, status, {"etag": tag, "cache-control": "no-cache"}, _JSON)


def stale_or_not(request: Request, error: PodiumError) -> int | None:
    """412 where an `If-Match` was what did not hold; else the error's own status (None)."""
    return 412 if isinstance(error, AliasMoved) and "if-match" in request.headers else None


def problem(error: PodiumError, status: int | None = None) -> Response:
    status = status or status_of(error)
    extra = {"www-authenticate": "Bearer"} if status == 401 else {}
    if isinstance(error, TooManyRequests) or status == 503:
        extra["retry-after"] = "1"
    return Response(to_problem(error, status), status, extra, headers.PROBLEM)


def _said(request: Request, error: PodiumError, status: int | None = None) -> Response:
    """An error as a page to who looks with a browser, where there are pages; else as a problem."""
    show = getattr(request.app.state, "problem_page", None)
    if show is None or request.url.path.startswith(headers.PREFIX) or not _is_browser(request):
        return problem(error, status)
    page: Response = show(request, error, status)
    return page


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def add_handlers(app: FastAPI) -> None:
    """Answer every error with a problem, whatever raised it; a browser with a page that says the same."""

    @app.exception_handler(PodiumError)
    async def known(request: Request, error: PodiumError) -> Response:
        return _said(request, error, stale_or_not(request, error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _said(request, invalid_request(error), 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, PodiumError):  # of ours, while the framework read the body
            return _said(request, error.__cause__)
        # The framework says 400 of a body that is no JSON, and 422 of everything else that is unusable.
        answer = _said(request, _of_http(error), 422 if error.status_code == 400 else error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        log.exception("unexpected", exc_info=error)
        said = PodiumError("The server met an error that it does not know.", remedy="See the server's log.")
        return _said(request, said, 500)


def _of_http(error: HTTPException) -> PodiumError:
    if error.status_code == 404:
        return NotFound("There is nothing at this address.", remedy="See /api/v1/docs.")
    return InvalidInput(str(error.detail), remedy="See /api/v1/docs.")


def invalid_request(error: RequestValidationError) -> InvalidRequest:
    """What is wrong with a request, in one sentence, and all of it in the details."""
    found = [
        {"where": ".".join(str(part) for part in each["loc"]), "problem": each["msg"]}
        for each in error.errors()
    ]
    first = found[0] if found else {"where": "body", "problem": "it cannot be read"}
    return InvalidRequest(
        f"The request cannot be used: {first['where']}: {first['problem']}.",
        remedy="See /api/v1/docs for what the operation takes.",
        problems=found[:20],
    )
