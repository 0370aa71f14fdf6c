"""The event log as it grows, and what is held open."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from registry.errors import AliasNotFound, InvalidRequest, TooManyRequests
from registry.http.allowance import Allowance
from registry.http.performing import Performer
from registry.http.shell import Failures, Shell
from registry.http.stream import Tail
from registry.http.transactions import OpenTransactions
from registry.identity.roles import TeamRole
from registry.resources import Resources
from registry.runs import Cause, RunRequest
from registry.store.stored import StoredRegistry
from tests.common.registries import Maker, Place, ServedPlace, running
from tests.unit.registry.http.conftest import Api


def test_waiting_ends_with_the_next_event(bot: Maker, place: Place, beneath: StoredRegistry) -> None:
    registry = place.open()
    newest = registry.events.position().newest
    assert not registry.events.wait(newest, 0.05)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(registry.events.wait, newest, 20)
        beneath.promotions.promote("bot:v1", "production")
        began = time.monotonic()
        assert waiting.result(20)
        assert time.monotonic() - began < 5


def test_the_stream_gives_every_event_after_the_one_seen_last(
    bot: Maker, api: Api, beneath: StoredRegistry
) -> None:
    found = []
    ready = threading.Event()

    def listen() -> None:
        with api().stream("GET", "/stream/events", headers={"last-event-id": "1"}) as answer:
            ready.set()
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: ")))
                    if found[-1]["type"] == "podium.alias.promoted":
                        return

    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen)
        assert ready.wait(20)
        beneath.promotions.promote("bot:v1", "production")
        listening.result(20)
    assert [event["sequence"] for event in found] == [2, 3]


def test_a_transaction_that_nobody_goes_on_with_is_undone(bot: Maker, beneath: StoredRegistry) -> None:
    transactions = OpenTransactions()
    id = transactions.begin(beneath, "owner")
    transactions.run(id, "owner", lambda: beneath.promotions.promote("bot:v1", "production"))
    transactions.undo_idle(idle=0)
    with pytest.raises(InvalidRequest, match="not open any more"):
        transactions.commit(id, "owner")
    with pytest.raises(AliasNotFound):
        beneath.promotions.get("bot", "production")


def test_a_transaction_is_its_owners_alone(beneath: StoredRegistry) -> None:
    transactions = OpenTransactions()
    id = transactions.begin(beneath, "owner")
    with pytest.raises(InvalidRequest):
        transactions.commit(id, "somebody")
    transactions.close()


def test_wrong_tokens_are_slowed_down_by_address() -> None:
    now = [0.0]
    failures = Failures(most=3, each=2.0, clock=lambda: now[0])
    for _ in range(3):
        assert failures.allowed("10.0.0.1")
        failures.add("10.0.0.1")
    assert not failures.allowed("10.0.0.1")
    assert failures.allowed("10.0.0.2")
    now[0] = 2.5
    assert failures.allowed("10.0.0.1")


def test_too_much_of_one_token_does_not_hold_up_another(beneath: StoredRegistry) -> None:
    now = [0.0]
    performer = Performer(beneath, Allowance(2, 1.0, clock=lambda: now[0]))

    def ask(secret: str) -> str:
        head = [(b"authorization", f"Bearer {secret}".encode())]
        return performer.asker(Request({"type": "http", "method": "GET", "headers": head})).token.name

    ada, bob = (beneath.identity.issue(name, TeamRole.VIEWER).secret for name in ("ann", "bob"))
    assert [ask(ada), ask(ada)] == ["ann", "ann"]
    with pytest.raises(TooManyRequests, match="token of 'ann'"):
        ask(ada)
    assert ask(bob) == "bob"
    now[0] = 1.5
    assert ask(ada) == "ann"


def test_a_body_that_stops_coming_is_given_up() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    pieces = iter([{"type": "http.request", "body": b"half", "more_body": True}])
    answers: list[Message] = []

    async def receive() -> Message:
        for piece in pieces:
            return piece
        return await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        answers.append(message)

    scope: Scope = {"type": "http", "path": "/", "headers": []}
    asyncio.run(Shell(app, patience=0.01)(scope, receive, send))
    assert answers[0]["status"] == 422
    assert b"Nothing of the body came" in answers[1]["body"]


def test_who_follows_closely_gets_events_without_the_database(bot: Maker, beneath: StoredRegistry) -> None:
    seen: list[int] = []

    async def follow(tail: Tail, after: int) -> None:
        async for events in tail.follow(after, beat=60):
            seen.extend(event.sequence for event in events)
            if seen[-1] == beneath.events.position().newest:
                return

    async def listening() -> None:
        tail = Tail(lambda: beneath)
        tail.start()
        try:
            assert await tail.wait(1, 60)
            beneath.promotions.promote("bot:v1", "production")
            assert await tail.wait(2, 60)
            assert [event.sequence for event in tail._remembered(1)] == [2, 3]
            assert tail._remembered(3) == []
            await asyncio.wait_for(follow(tail, 0), 60)
        finally:
            await tail.stop()

    asyncio.run(listening())
    assert seen == [1, 2, 3]


def test_metrics_are_for_who_has_a_token(bot: Maker, place: ServedPlace, api: Api) -> None:
    address = f"{place.url}/metrics"
    assert httpx.get(address).status_code == 401
    shown = httpx.get(address, headers={"authorization": f"Bearer {place.token}"}).text
    assert "podium_events 2.0" in shown
    assert "podium_events_unrelayed 2.0" in shown


def test_metrics_tell_what_waits_and_which_attempts_were_lost(
    place: ServedPlace, beneath: StoredRegistry
) -> None:
    acting, claim = running(beneath, "train")
    beneath.runs.queue(RunRequest("train", resources=Resources(cpu=1)))
    acting.runs.end(claim.run.id, Cause.LOST)
    shown = httpx.get(f"{place.url}/metrics", headers={"authorization": f"Bearer {place.token}"}).text
    assert 'podium_runs{pool="default",state="queued"} 2.0' in shown
    assert 'podium_attempts_total{cause="lost",outcome="interrupted"} 1.0' in shown
    assert 'podium_queue_seconds{pool="default"}' in shown
