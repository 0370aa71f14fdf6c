"""The little of ASGI that the middleware speaks."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Disconnected(Exception):
    """The client went away before its request was whole."""


def header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key.lower() == name), None)


def without(scope: Scope, *names: bytes, adding: Sequence[tuple[bytes, bytes]] = ()) -> Scope:
    """The scope without some headers, and with others."""
    kept = [(key, value) for key, value in scope["headers"] if key.lower() not in names]
    return {**scope, "headers": [*kept, *adding]}


def replay(body: bytes, receive: Receive) -> Receive:
    """Give the app the body in one message; what comes after it (a disconnect) is the client's own."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def reply_json(send: Send, value: Any) -> None:
    await reply(send, 200, json.dumps(value).encode())


async def reply(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    about = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
