"""Errors as problem+json (RFC 9457), and back: a program sees the same error over any front door."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from registry.errors import (
    AliasMoved,
    BodyTooLarge,
    Forbidden,
    InvalidInput,
    NotFound,
    PodiumError,
    Refused,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

_STATUSES: tuple[tuple[type[PodiumError], int], ...] = (
    (Unauthorized, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (BodyTooLarge, 413),
    (TooManyRequests, 429),
    (AliasMoved, 409),
    (Refused, 409),
    (InvalidInput, 422),
    (Unavailable, 503),
)


def status_of(error: PodiumError) -> int:
    """The HTTP status that says what kind of error it is."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def to_problem(error: PodiumError, status: int | None = None) -> bytes:
    """The error as the body of an answer. ``code`` and ``exit_status`` are those of the command line."""
    document = {
        "type": f"urn:podium:error:{error.code}",
        "title": _title(error),
        "status": status or status_of(error),
        "detail": error.message,
        "code": error.code,
        "exit_status": error.exit_status,
        "remedy": error.remedy,
        "details": error.details,
    }
    return json.dumps(document, default=str).encode()


def _title(error: PodiumError) -> str:
    return error.code.replace("_", " ").capitalize()


def from_problem(document: Mapping[str, Any]) -> PodiumError:
    """The error that a server told of; one of a type that is not known here keeps its branch."""
    kind = _kinds().get(str(document.get("code"))) or _branch(document)
    details = document.get("details")
    error = kind(
        str(document.get("detail") or document.get("title") or "The server gave no reason."),
        remedy=str(document.get("remedy", "")),
    )
    error.details = dict(details) if isinstance(details, dict) else {}
    return error


def _branch(document: Mapping[str, Any]) -> type[PodiumError]:
    status = document.get("exit_status")
    return {1: Refused, 2: InvalidInput, 3: Unavailable}.get(
        status if isinstance(status, int) else 0, Unavailable
    )


def _kinds() -> dict[str, type[PodiumError]]:
    """Every error class that is loaded, by its code."""
    found: dict[str, type[PodiumError]] = {}
    waiting: list[type[PodiumError]] = [PodiumError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found[kind.code_name()] = kind
    return found
