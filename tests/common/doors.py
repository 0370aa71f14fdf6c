"""Requests to the alias middleware without a server: a small app inside, and what a client would see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from serving.middleware import AliasMiddleware, Fence, RouteMap

TOKEN = "secret"
ROUTES = RouteMap(Fence(1, 1, 1), {"bot": "bot:v2"}, frozenset({"bot:v1", "bot:v2"}))


@dataclass
class Echo:
    """An app that answers with what it was asked, in as many parts as ``parts``."""

    parts: int = 1
    hold: asyncio.Event | None = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    disconnected: bool = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        headers = dict(scope["headers"])
        if message.get("body"):
            self.seen.append(json.loads(message["body"]))
            self.lengths.append(int(headers[b"content-length"]))
            assert len(message["body"]) == self.lengths[-1]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]})
        for part in range(self.parts):
            if self.hold is not None:
                await self.hold.wait()
            more = part < self.parts - 1
            await send({"type": "http.response.body", "body": f"part{part} ".encode(), "more_body": more})
        if self.disconnected:
            assert (await receive())["type"] == "http.disconnect"


@dataclass
class Reply:
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    parts: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def call(
    app: AliasMiddleware,
    method: str = "POST",
    path: str = "/v1/completions",
    body: Any = None,
    *,
    token: str | None = None,
    headers: list[tuple[bytes, bytes]] | None = None,
    pieces: int = 1,
    on_send: Callable[[Any], None] = lambda message: None,
    raw: bytes | None = None,
) -> Reply:
    data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    size = max(1, -(-len(data) // pieces))
    messages = [data[i : i + size] for i in range(0, len(data), size)] or [b""]
    sent: list[Any] = []

    async def receive() -> Any:
        if not messages:
            return {"type": "http.disconnect"}
        part = messages.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(messages)}

    async def send(message: Any) -> None:
        sent.append(message)
        on_send(message)

    given_headers = list(headers or [(b"content-length", str(len(data)).encode())])
    if token is not None:
        given_headers.append((b"x-podium-token", token.encode()))
    scope = {"type": "http", "method": method, "path": path, "headers": given_headers}
    await app(scope, receive, send)
    start, *rest = sent or [{"status": 0, "headers": []}]
    return Reply(
        start["status"], dict(start["headers"]), b"".join(m.get("body", b"") for m in rest), len(rest)
    )


def routed(app: Any = None, routes: RouteMap | None = ROUTES, **settings: Any) -> AliasMiddleware:
    made = AliasMiddleware(app or Echo(), TOKEN, **settings)
    if routes is not None:
        made.switchboard.apply(routes, made.switchboard.boot)
    return made


def map_body(app: AliasMiddleware, routes: RouteMap) -> dict[str, Any]:
    return {**routes.to_json(), "boot": app.switchboard.boot}
