"""What the server makes of requests: once, in pages, unchanged, too large, and of the wrong form."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from registry.content.chunking import LARGEST
from registry.deployments import Target
from registry.errors import ServerMismatch, ServerUnavailable
from registry.http import shell
from registry.remote.transport import Transport
from registry.resources import Resources
from registry.runs import RunRequest
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
    assert (stale.status_code, stale.json()["code"]) == (412, "alias_moved")
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


def _all_pages(http: httpx.Client, address: str) -> list[Any]:
    """All items of a list, page by page as the server links them."""
    seen: list[Any] = []
    while address:
        answer = http.get(address)
        assert answer.status_code == 200, answer.text
        seen += answer.json()
        link = answer.links.get("next")
        address = link["url"].removeprefix(headers.PREFIX) if link else ""
    return seen


def test_pages_follow_one_another_by_cursor(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    for _ in range(3):
        bot.adapter("bot")
    seen = _all_pages(api(), "/artifacts/bot/versions?limit=2")
    assert [each["number"] for each in seen] == [5, 4, 3, 2, 1]


def test_a_history_is_read_in_pages_over_all_aliases(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    for version, alias in ((1, "a"), (1, "b"), (2, "a"), (2, "b"), (1, "a")):
        beneath.promotions.promote(f"bot:v{version}", alias)
    seen = _all_pages(api(), "/artifacts/bot/promotions?limit=2")
    moves = [(each["alias"], each["generation"]) for each in seen]
    assert moves == [("a", 3), ("b", 2), ("a", 2), ("b", 1), ("a", 1)]
    of_one = _all_pages(api(), "/artifacts/bot/promotions?alias=a&limit=1")
    assert [each["generation"] for each in of_one] == [3, 2, 1]


def test_runs_are_read_in_pages_also_those_of_one_task(api: Api, beneath: StoredRegistry) -> None:
    wanted = [RunRequest(task, resources=Resources(cpu=1)) for task in ("a", "b", "a", "a")]
    queued = [beneath.runs.queue(request) for request in wanted]
    seen = _all_pages(api(), "/runs?limit=2")
    assert [each["id"] for each in seen] == [each.id for each in reversed(queued)]
    of_one = _all_pages(api(), "/runs?task=a&limit=1")
    assert [each["id"] for each in of_one] == [queued[turn].id for turn in (3, 2, 0)]


def test_rollouts_are_read_in_pages(bot: Maker, api: Api, beneath: StoredRegistry) -> None:
    digest = beneath.catalog.resolve("bot:v1").digest
    begun = [
        beneath.deployments.begin(Target(f"d{turn}", 1, "bot", "bot", None, 0, 1, digest))
        for turn in (1, 2, 3)
    ]
    seen = _all_pages(api(), "/rollouts?limit=2")
    assert [each["id"] for each in seen] == [each.id for each in reversed(begun)]


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


def test_a_body_that_grows_too_large_on_its_way_is_refused(
    bot: Maker, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "LARGEST_JSON", 1000)
    pieces = (b" " * 600 for _ in range(3))  # its length is not said
    answer = api().post("/versions/bot:v1/promotions", content=pieces)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_chunk_that_is_not_what_it_says_is_not_stored(api: Api, beneath: StoredRegistry) -> None:
    http = api()
    assert http.put(f"/chunks/{_ZERO}", content=b"something else").status_code == 422
    assert http.post("/chunks/missing", json={"keys": [_ZERO]}).json() == [_ZERO]


def test_a_chunk_that_the_store_has_cut_short_is_missing(api: Api, beneath: StoredRegistry) -> None:
    http, data = api(), b"some bytes"
    key = hashlib.sha256(data).hexdigest()
    assert http.put(f"/chunks/{key}", content=data).status_code == 204
    for size, missing in ((len(data), []), (len(data) + 1, [key])):
        asked = {"keys": [key], "sizes": {key: size}}
        assert http.post("/chunks/missing", json=asked).json() == missing


def test_an_upload_that_was_cut_half_way_stores_nothing_and_can_be_sent_again(
    api: Api, place: ServedPlace
) -> None:
    data = bytes(range(256)) * 4000
    key = hashlib.sha256(data).hexdigest()
    address = httpx.URL(place.url)
    connection = HTTPConnection(address.host, address.port, timeout=20)
    connection.putrequest("PUT", f"{headers.PREFIX}/chunks/{key}")
    connection.putheader("content-length", str(len(data)))
    connection.putheader("authorization", f"Bearer {place.token}")
    connection.endheaders(data[: len(data) // 2])
    connection.close()
    http = api()
    assert http.post("/chunks/missing", json={"keys": [key]}).json() == [key]
    assert http.put(f"/chunks/{key}", content=data).status_code == 204
    assert http.get(f"/chunks/{key}").content == data


def test_a_manifest_that_gives_another_digest_than_its_chunks_make_is_refused(api: Api) -> None:
    http, keys = api(), []
    for data in (b"one", b"two"):
        keys.append(hashlib.sha256(data).hexdigest())
        http.put(f"/chunks/{keys[-1]}", content=data)
    honest = hashlib.sha256(b"onetwo").hexdigest()
    for digest, status in ((_ZERO, 422), (honest, 200)):
        file = {"path": "a.txt", "size": 6, "sha256": digest, "chunks": [[key, 3] for key in keys]}
        body = {"kind": "dataset", "manifest": {"schema": 1, "files": [file]}}
        answer = http.post("/artifacts/data/versions", json=body)
        assert answer.status_code == status, answer.text


def test_files_that_no_client_of_ours_would_send_as_an_adapter_are_refused(api: Api) -> None:
    http, data = api(), b"no header of safetensors"
    key = hashlib.sha256(data).hexdigest()
    http.put(f"/chunks/{key}", content=data)
    file = {"path": "adapter_model.safetensors", "size": len(data), "sha256": key}
    manifest = {"schema": 1, "files": [{**file, "chunks": [[key, len(data)]]}]}
    answer = http.post("/artifacts/bot/versions", json={"kind": "adapter", "manifest": manifest})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_content")


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


@pytest.mark.parametrize(
    ("level", "expected"), [("0", "older than this podium"), ("", "no podium server that this podium")]
)
def test_a_server_that_is_too_old_is_told_of(level: str, expected: str) -> None:
    def old(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=[], headers={headers.LEVEL: level})

    transport = Transport.to("http://old.example", "podium_x", http=httpx.MockTransport(old))
    with pytest.raises(ServerMismatch, match=expected):
        transport.request("GET", "/artifacts")


def test_a_client_that_is_too_fast_waits_and_asks_again() -> None:
    answers = [(429, {"retry-after": "0"}), (429, {"retry-after": "0"}), (200, {headers.LEVEL: "1"})]
    given = iter(answers)

    def busy(request: httpx.Request) -> httpx.Response:
        status, head = next(given)
        return httpx.Response(status, json=[], headers=head)

    transport = Transport.to("http://busy.example", "podium_x", http=httpx.MockTransport(busy))
    assert transport.request("GET", "/artifacts").json() == []
    assert next(given, None) is None


def test_a_server_that_never_answers_is_unavailable() -> None:
    tried = []

    def away(request: httpx.Request) -> httpx.Response:
        tried.append(request)
        raise httpx.ConnectError("refused")

    transport = Transport.to("http://away.example", "podium_x", http=httpx.MockTransport(away))
    with pytest.raises(ServerUnavailable, match="does not answer"):
        transport.request("GET", "/artifacts")
    assert len(tried) > 1


def test_an_unknown_parameter_of_a_newer_client_is_told_of(api: Api) -> None:
    asked = api().post("/runs", json={"request": {"task": "a.py:t"}, "colour": "red"})
    assert asked.status_code == 422
    assert "colour" in asked.json()["detail"]


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
