"""Telling open pages that something has changed. They then fetch what they show anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from registry.http.stream import Tail
from registry.pages.visiting import visitor
from registry.values import Event

_BEAT_SECONDS = 15.0  # a proxy closes what says nothing for long


def add_live(router: APIRouter) -> None:
    @router.get("/live")
    async def live(
        request: Request,
        of: Annotated[list[str], Query(max_length=20)],
        key: str = "",
        after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    ) -> Response:
        """Server-sent events: the sequence of each event whose type begins with one of ``of``.

        With ``key`` only of that artifact. A page that was asleep says ``after`` which it was up to date.
        """
        await run_in_threadpool(visitor, request)
        tail: Tail = request.app.state.tail
        last = request.headers.get("last-event-id", "")
        start = int(last) if last.isdecimal() and len(last) <= 18 else after
        return StreamingResponse(
            _messages(tail, start, tuple(f"podium.{each}." for each in of), key),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )


async def _messages(tail: Tail, after: int, types: tuple[str, ...], key: str) -> AsyncIterator[str]:
    yield ": podium\n\n"
    async for events in tail.follow(after, beat=_BEAT_SECONDS):
        relevant = [event for event in events if _is_relevant(event, types, key)]
        if relevant:  # one message for all: the page is fetched anew once
            yield f"id: {events[-1].sequence}\ndata: {relevant[-1].type}\n\n"
        elif not events:
            yield ": still here\n\n"


def _is_relevant(event: Event, types: tuple[str, ...], key: str) -> bool:
    return event.type.startswith(types) and key in ("", event.key)
