"""What the server makes of requests: once, in pages, unchanged, too large, and of the wrong form."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx
import pytest

from registry.content.chunking import LARGEST
from registry.store.stored import StoredRegistry
from registry.wire import headers
from tests.common.registries import Maker, ServedPlace
from tests.unit.registry.http.conftest import Api

_ZERO = "0" * 64


def test_a_write_that_is_sent_again_is_done_once(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    http = api()
    again = {headers.IDEMPOTENCY: "one"}
    body = {"alias": "production", "expect": None}
    first = http.post("/versions/bot:v1/promotions", json=body, headers=again)
    second = http.post("/versions/bot:v1/promotions", json=body, headers=again)
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert second.headers["idempotent-replayed"] == "true"
    assert len(beneath.promotions.history("bot")) == 1


def test_the_same_write_sent_by_many_at_once_is_done_once(
    bot: Maker, api: Api, beneath: StoredRegistry
) -> None:
    http = api()

    def send(_: int) -> int:
        body = {"alias": "production", "expect": None}
        given = {headers.IDEMPOTENCY: "one"}
        return http.post("/versions/bot:v1/promotions", json=body, headers=given).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(16))) == {200}
    assert len(beneath.promotions.history("bot")) == 1


def test_a_key_is_good_for_one_request_alone(bot: Maker, api: Api) -> None:
    http = api()
    given = {headers.IDEMPOTENCY: "one"}
    assert http.post("/versions/bot:v1/promotions", json={"alias": "a"}, headers=given).status_code == 200
    other = http.post("/versions/bot:v1/promotions", json={"alias": "b"}, headers=given)
    assert other.status_code == 422
    assert "used for another request" in other.json()["detail"]


def test_a_refused_write_may_be_sent_again(bot: Maker, api: Api) -> None:
    http = api()
    given = {headers.IDEMPOTENCY: "one"}
    body = {"alias": "production", "expect": 1}
    assert http.post("/versions/bot:v2/promotions", json=body, headers=given).status_code == 409
    http.post("/versions/bot:v1/promotions", json={"alias": "production"})
    assert http.post("/versions/bot:v2/promotions", json=body, headers=given).status_code == 200


def test_two_writers_with_one_expectation_are_told_apart(bot: Maker, api: Api) -> None:
    http = api()
    first = http.post("/versions/bot:v1/promotions", json={"alias": "production", "expect": None})
    second = http.post("/versions/bot:v2/promotions", json={"alias": "production", "expect": None})
    assert (first.status_code, second.status_code) == (200, 409)
    problem = second.json()
    assert (problem["code"], problem["exit_status"]) == ("alias_moved", 1)
    assert problem["details"] == {"version": 1, "generation": 1}


def test_a_stale_etag_moves_nothing(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    http = api()
    http.post("/versions/bot:v1/promotions", json={"alias": "production"})
    stale = http.post(
        "/versions/bot:v2/promotions", json={"alias": "production"}, headers={"if-match": '"7"'}
    )
    assert stale.status_code == 409
    fresh = http.post(
        "/versions/bot:v2/promotions", json={"alias": "production"}, headers={"if-match": '"1"'}
    )
    assert fresh.status_code == 200
    assert beneath.promotions.get("bot", "production").version == 2


def test_what_has_not_changed_is_not_sent_again(bot: Maker, api: Api) -> None:
    http = api()
    first = http.get("/versions/bot:v1")
    same = http.get("/versions/bot:v1", headers={"if-none-match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    http.patch("/versions/bot:v1/tags", json={"tags": {"team": "support"}})
    changed = http.get("/versions/bot:v1", headers={"if-none-match": first.headers["etag"]})
    assert changed.json()["tags"] == {"team": "support"}


def test_pages_follow_one_another_by_cursor(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    for _ in range(3):
        bot.adapter("bot")
    http = api()
    seen, address = [], "/artifacts/bot/versions?limit=2"
    while address:
        answer = http.get(address)
        seen += [each["number"] for each in answer.json()]
        link = answer.links.get("next")
        address = link["url"].removeprefix(headers.PREFIX) if link else ""
    assert seen == [5, 4, 3, 2, 1]


def test_the_cursor_of_another_list_is_refused(bot: Maker, api: Api) -> None:
    bot.model("tiny")
    http = api()
    cursor = httpx.URL(http.get("/artifacts/bot/versions?limit=1").links["next"]["url"]).params["cursor"]
    other = http.get("/artifacts/tiny/versions", params={"cursor": cursor})
    assert other.status_code == 422
    assert "another list" in other.json()["detail"]
    damaged = http.get("/artifacts/bot/versions", params={"cursor": cursor[:-3] + "!"})
    assert damaged.status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"alias": 7}',
        b'{"alias": "a", "colour": "red"}',
        b'{"alias": NaN}',
        b"\xff\xfe",
    ],
)
def test_a_body_that_is_not_what_the_operation_takes_is_refused(bot: Maker, api: Api, body: bytes) -> None:
    answer = api().post(
        "/versions/bot:v1/promotions", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.headers["content-type"] == headers.PROBLEM
    assert answer.json()["code"] in ("invalid_request", "invalid_reference")


def test_what_no_column_holds_is_refused(bot: Maker, api: Api) -> None:
    http = api()
    assert http.get("/events", params={"sequence": str(2**70)}).status_code == 422
    huge = {"lease": {"name": "run/x", "holder": "a", "epoch": 2**70, "beat": 0}}
    assert http.post("/leases/releases", json=huge).status_code == 422


def test_a_body_that_is_too_large_is_refused_before_it_is_read(place: ServedPlace) -> None:
    address = httpx.URL(place.url)
    connection = HTTPConnection(address.host, address.port, timeout=20)
    connection.putrequest("PUT", f"{headers.PREFIX}/chunks/{_ZERO}")
    connection.putheader("content-length", str(LARGEST + 100))
    connection.putheader("authorization", f"Bearer {place.token}")
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (413, "body_too_large")
    connection.close()


def test_a_chunk_that_is_not_what_it_says_is_not_stored(api: Api, beneath: StoredRegistry) -> None:
    http = api()
    assert http.put(f"/chunks/{_ZERO}", content=b"something else").status_code == 422
    assert http.post("/chunks/missing", json={"keys": [_ZERO]}).json() == [_ZERO]


def test_a_manifest_whose_chunks_were_not_sent_makes_no_version(api: Api) -> None:
    manifest = {
        "schema": 1,
        "files": [{"path": "a.txt", "size": 3, "sha256": _ZERO, "chunks": [[_ZERO, 3]]}],
    }
    answer = api().post("/artifacts/data/versions", json={"kind": "dataset", "manifest": manifest})
    assert answer.status_code == 422
    assert answer.json()["details"]["missing"] == [_ZERO]


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../b", "con\x00"])
def test_a_path_that_climbs_makes_no_version(api: Api, path: str) -> None:
    manifest = {"schema": 1, "files": [{"path": path, "size": 0, "sha256": _ZERO, "chunks": []}]}
    answer = api().post("/artifacts/data/versions", json={"kind": "dataset", "manifest": manifest})
    assert answer.status_code == 422


def test_an_address_that_does_not_exist_is_a_problem_too(api: Api) -> None:
    answer = api().get("/nothing/here")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == headers.PROBLEM


def test_a_client_that_is_too_old_is_told_so(api: Api) -> None:
    answer = api().get("/artifacts", headers={headers.LEVEL: "0"})
    assert answer.status_code == 503
    assert answer.json()["code"] == "server_mismatch"


def test_a_browser_runs_nothing_that_an_answer_holds(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    digest = beneath.catalog.resolve("bot:v1").digest
    answer = api().get(f"/contents/{digest}/files/adapter_config.json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"
    assert "script-src 'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert json.loads(answer.content)


def test_a_cookie_counts_only_for_requests_of_our_own_pages(bot: Maker, place: ServedPlace, api: Api) -> None:
    http = api(token="")
    http.cookies.set("podium_session", place.token)
    assert http.get("/artifacts").status_code == 200
    move = {"alias": "production"}
    foreign = http.post("/versions/bot:v1/promotions", json=move, headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert http.post("/versions/bot:v1/promotions", json=move).status_code == 403
    own = http.post("/versions/bot:v1/promotions", json=move, headers={"origin": place.url})
    assert own.status_code == 200
