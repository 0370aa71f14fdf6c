"""The event log as it grows, and what is held open."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from registry.errors import AliasNotFound, InvalidRequest
from registry.http.shell import Failures
from registry.http.transactions import OpenTransactions
from registry.store.stored import StoredRegistry
from tests.common.registries import Maker, Place, ServedPlace
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


def test_metrics_are_for_who_has_a_token(bot: Maker, place: ServedPlace, api: Api) -> None:
    address = f"{place.url}/metrics"
    assert httpx.get(address).status_code == 401
    shown = httpx.get(address, headers={"authorization": f"Bearer {place.token}"}).text
    assert "podium_events 2.0" in shown
    assert 'podium_runs{state="queued"} 0.0' in shown
