"""Cursors: where the next page of a list begins, in a form that only that list takes."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from registry.errors import InvalidRequest

CURSOR = "cursor"


def to_cursor(request: Request, key: Any) -> str:
    document = json.dumps([_list_of(request), key], separators=(",", ":"))
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def from_cursor(request: Request, cursor: str) -> Any:
    """The key after which a page begins.

    Raises:
        InvalidRequest: the cursor is of another list, or none at all.
    """
    try:
        document = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        listed, key = document
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        raise InvalidRequest("The cursor is damaged.", remedy="Begin at the first page.") from error
    if listed != _list_of(request):
        raise InvalidRequest("The cursor is of another list.", remedy="Begin at the first page of this one.")
    return key


def next_link(request: Request, cursor: str) -> str:
    """The header that says where the next page is (RFC 8288)."""
    query = [(name, value) for name, value in request.query_params.multi_items() if name != CURSOR]
    return f'<{request.url.path}?{urlencode([*query, (CURSOR, cursor)])}>; rel="next"'


def _list_of(request: Request) -> str:
    """What is listed: the path and every filter, without how much of it and where from."""
    left_out = {CURSOR, "limit", "after", "before", "sequence"}
    filters = sorted((n, v) for n, v in request.query_params.multi_items() if n not in left_out)
    return f"{request.url.path}?{urlencode(filters)}"
