"""Open transactions, the growing event log, and who one is: routes beside the table of operations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from registry.errors import InvalidRequest
from registry.http.answering import json_answer
from registry.http.performing import Performer
from registry.http.stream import Tail
from registry.identity.roles import TeamRole
from registry.values import Event
from registry.wire import headers
from registry.wire.operation import adapter_of

_BEAT_SECONDS = 15.0  # a proxy closes what says nothing for long
_LONGEST_WAIT = 30.0
_EVENT = adapter_of(Event)


class Server(BaseModel):
    """What a client must know before it begins."""

    version: str
    api: int
    database_id: str
    actor: str
    role: str
    pattern: str
    lease_seconds: float
    rollback_window: int
    direct: bool  # chunks go to and from a bucket directly


class Began(BaseModel):
    id: str


def add_session(router: APIRouter, performer: Performer, tail: Tail) -> None:
    """Add the routes of this file."""
    _add_server(router, performer)
    _add_transactions(router, performer)
    _add_stream(router, performer, tail)


def _add_server(router: APIRouter, performer: Performer) -> None:
    @router.get("/server", tags=["server"], operation_id="server", response_model=Server)
    def server(request: Request) -> Response:
        """Which server this is, and who one is to it."""
        from importlib.metadata import version

        who = performer.asker(request)
        settings = performer.registry.settings
        found = Server(
            version=version("podium"),
            api=headers.API_LEVEL,
            database_id=performer.registry.database_id,
            actor=who.registry.origin.actor,
            role=who.token.role.value,
            pattern=who.token.pattern,
            lease_seconds=settings.lease_seconds,
            rollback_window=settings.rollback_window,
            direct=settings.blobs_url.startswith("s3://"),
        )
        return json_answer(found.model_dump_json().encode(), request)


def _add_transactions(router: APIRouter, performer: Performer) -> None:
    transactions = performer.transactions

    @router.post(
        "/transactions", tags=["transactions"], operation_id="transactions_begin", response_model=Began
    )
    def begin(request: Request) -> Response:
        """Open a transaction, of which requests are that have its id in `Podium-Transaction`.

        They become true together, or not at all. One that is not used for ten seconds is undone.
        """
        who = performer.asker(request)
        who.require("transactions.begin", TeamRole.TRAINER)
        began = Began(id=transactions.begin(who.registry, who.token.id))
        return json_answer(began.model_dump_json().encode(), request)

    @router.post("/transactions/{id}/commit", tags=["transactions"], operation_id="transactions_commit")
    def commit(request: Request, id: str) -> Response:
        """Make all of a transaction true."""
        transactions.commit(id, performer.asker(request).token.id)
        return Response(status_code=204)

    @router.delete("/transactions/{id}", tags=["transactions"], operation_id="transactions_undo")
    def undo(request: Request, id: str) -> Response:
        """Undo a transaction."""
        transactions.undo(id, performer.asker(request).token.id)
        return Response(status_code=204)


def _add_stream(router: APIRouter, performer: Performer, tail: Tail) -> None:
    @router.get("/stream/wait", tags=["events"], operation_id="events_wait", response_model=bool)
    async def wait(
        request: Request,
        sequence: Annotated[int, Query(ge=0, le=2**62)],
        timeout: Annotated[float, Query(ge=0, le=_LONGEST_WAIT)] = _LONGEST_WAIT,
    ) -> Response:
        """Answered as soon as there is an event after `sequence`, or after `timeout` seconds."""
        who = await run_in_threadpool(performer.asker, request)
        who.require("events.wait", TeamRole.VIEWER)
        return json_answer(json.dumps(await tail.wait(sequence, timeout)).encode(), request)

    @router.get(
        "/stream/events",
        tags=["events"],
        operation_id="events_follow",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def follow(
        request: Request, after: Annotated[int | None, Query(ge=0, le=2**62)] = None
    ) -> Response:
        """Events after a sequence as they come, as server-sent events whose id is the sequence.

        A browser that reconnects says in `Last-Event-ID` what it saw last, and misses none.
        """
        who = await run_in_threadpool(performer.asker, request)
        who.require("events.follow", TeamRole.VIEWER)
        start = _seen_last(request, after, tail.newest)
        return StreamingResponse(
            _as_messages(tail, start), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )


def _seen_last(request: Request, after: int | None, newest: int) -> int:
    last = request.headers.get("last-event-id")
    if last is None:
        return newest if after is None else after
    if not last.isdecimal() or len(last) > 18:
        raise InvalidRequest("Last-Event-ID is no sequence of an event.")
    return int(last)


async def _as_messages(tail: Tail, sequence: int) -> AsyncIterator[str]:
    yield ": podium\n\n"
    async for events in tail.follow(sequence, beat=_BEAT_SECONDS):
        if not events:
            yield ": still here\n\n"
        for event in events:
            yield _message(event)


def _message(event: Event) -> str:
    return f"id: {event.sequence}\nevent: {event.type}\ndata: {_EVENT.dump_json(event).decode()}\n\n"
