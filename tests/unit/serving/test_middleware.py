"""The alias middleware over small ASGI apps: names, streams, doors, fences, counts."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import middleware
from serving.middleware import AliasMiddleware, Bounds, Fence, Problem, RouteMap, Switchboard
from tests.common.doors import ROUTES, TOKEN, Echo, Reply, call, map_body, routed


def _imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) if not node.level}


def test_it_imports_nothing_but_the_standard_library() -> None:
    files = list(Path(middleware.__file__).parent.glob("*.py"))
    assert len(files) > 5
    imported = {name.split(".")[0] for file in files for name in _imported(file)}
    assert imported <= sys.stdlib_module_names


def test_a_served_name_is_answered_by_its_version_and_says_so() -> None:
    echo = Echo()
    reply = asyncio.run(call(routed(echo), body={"model": "bot", "prompt": "hé", "n": 1}))
    assert reply.status == 200
    assert reply.headers[b"x-podium-version"] == b"bot:v2"
    assert reply.headers[b"x-app"] == b"1"
    assert echo.seen == [{"model": "bot:v2", "prompt": "hé", "n": 1}]


def test_a_body_that_arrives_in_pieces_is_rewritten_whole() -> None:
    echo = Echo()
    body = {"model": "bot", "prompt": "x" * 5000}
    asyncio.run(call(routed(echo), body=body, pieces=7, headers=[(b"transfer-encoding", b"chunked")]))
    assert echo.seen == [{**body, "model": "bot:v2"}]


def test_a_version_may_be_asked_for_by_its_own_name() -> None:
    reply = asyncio.run(call(routed(), body={"model": "bot:v1"}))
    assert (reply.status, reply.headers[b"x-podium-version"]) == (200, b"bot:v1")


def test_a_streamed_answer_passes_part_by_part() -> None:
    arrived: list[Any] = []
    reply = asyncio.run(
        call(routed(Echo(parts=4)), body={"model": "bot", "stream": True}, on_send=arrived.append)
    )
    assert [m.get("body") for m in arrived[1:]] == [b"part0 ", b"part1 ", b"part2 ", b"part3 "]
    assert reply.parts == 4


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"prompt": "x"}, 400, "names no 'model'"),
        ({"model": ""}, 400, "names no 'model'"),
        ({"model": None}, 400, "names no 'model'"),
        ({"model": 7}, 400, "must be a string"),
        ({"model": "nobody"}, 404, "`nobody` is not served here. Served: bot, bot:v1, bot:v2."),
        ({"model": "bot:v9"}, 404, "not served"),
        ([1], 400, "must be a JSON object"),
    ],
)
def test_a_request_that_names_no_served_model_is_refused_in_words(body: Any, status: int, words: str) -> None:
    echo = Echo()
    reply = asyncio.run(call(routed(echo), body=body))
    assert reply.status == status
    assert words in reply.json["error"]["message"]
    assert not echo.seen


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_not_json_is_refused(raw: bytes) -> None:
    assert asyncio.run(call(routed(), raw=raw)).status == 400


def test_a_body_over_the_bound_is_refused_by_its_length_and_by_its_bytes() -> None:
    app = routed(bounds=Bounds(body=100))
    big = {"model": "bot", "prompt": "x" * 200}
    declared = asyncio.run(call(app, body=big))
    undeclared = asyncio.run(call(app, body=big, pieces=9, headers=[(b"transfer-encoding", b"chunked")]))
    assert (declared.status, undeclared.status) == (413, 413)
    assert declared.headers[b"connection"] == b"close"


CLOSED = [
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/unload_lora_adapter"),
    ("POST", "/v1/load_lora_adapter/"),
    ("POST", "//v1/load_lora_adapter"),
    ("GET", "/podium/state"),
    ("PUT", "/podium/map"),
    ("POST", "/podium/drain"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("POST", "/invocations"),
    ("POST", "/sleep"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/models/bot"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_a_client_reaches_no_other_path(method: str, path: str) -> None:
    echo = Echo()
    reply = asyncio.run(call(routed(echo), method, path, {"model": "bot"}))
    assert reply.status == 404
    assert not echo.seen


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_a_wrong_token_opens_nothing(method: str, path: str) -> None:
    echo = Echo()
    for token in ("", "Secret", TOKEN + "x"):
        assert asyncio.run(call(routed(echo), method, path, {"model": "bot"}, token=token)).status == 403
    assert not echo.seen


def test_a_websocket_is_closed() -> None:
    sent: list[Any] = []

    async def work() -> None:
        async def receive() -> Any:
            raise AssertionError("nothing is read")

        async def send(message: Any) -> None:
            sent.append(message)

        await routed()({"type": "websocket", "path": "/v1/realtime"}, receive, send)

    asyncio.run(work())
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_without_a_token_in_the_environment_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(middleware.TOKEN_VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="PODIUM_ENGINE_TOKEN"):
        AliasMiddleware(Echo())


def test_it_is_not_ready_before_it_has_its_map() -> None:
    async def work() -> None:
        app = routed(routes=None)
        for method, path in (("GET", "/health"), ("GET", "/v1/models"), ("POST", "/v1/completions")):
            reply = await call(app, method, path, {"model": "bot"})
            assert reply.status == 503
            assert reply.headers[b"retry-after"] == b"1"
        applied = await call(app, "PUT", "/podium/map", map_body(app, ROUTES), token=TOKEN)
        assert applied.status == 200
        assert (await call(app, "GET", "/health")).status == 200
        listed = (await call(app, "GET", "/v1/models")).json["data"]
        assert [(card["id"], card["root"]) for card in listed] == [
            ("bot", "bot:v2"),
            ("bot:v1", "bot:v1"),
            ("bot:v2", "bot:v2"),
        ]

    asyncio.run(work())


def test_a_draining_replica_admits_nothing_and_finishes_what_it_has() -> None:
    async def work() -> None:
        hold = asyncio.Event()
        app = routed(Echo(hold=hold))
        running = asyncio.create_task(call(app, body={"model": "bot"}))
        await asyncio.sleep(0)
        body = {"fence": ROUTES.fence.to_json(), "boot": app.switchboard.boot}
        assert (await call(app, "POST", "/podium/drain", body, token=TOKEN)).json["in_flight"] == {
            "bot:v2": 1
        }
        assert (await call(app, body={"model": "bot"})).status == 503
        hold.set()
        assert (await running).status == 200
        assert app.switchboard.state()["in_flight"] == {}

    asyncio.run(work())


def test_a_flip_moves_the_next_request_and_not_the_one_that_runs() -> None:
    async def work() -> None:
        hold = asyncio.Event()
        echo = Echo(hold=hold)
        app = routed(echo)
        old = asyncio.create_task(call(app, body={"model": "bot"}))
        await asyncio.sleep(0)
        newer = RouteMap(Fence(1, 1, 2), {"bot": "bot:v3"}, frozenset({"bot:v2", "bot:v3"}))
        await call(app, "PUT", "/podium/map", map_body(app, newer), token=TOKEN)
        new = asyncio.create_task(call(app, body={"model": "bot"}))
        await asyncio.sleep(0)
        assert app.switchboard.state()["in_flight"] == {"bot:v2": 1, "bot:v3": 1}
        hold.set()
        assert (await old).headers[b"x-podium-version"] == b"bot:v2"
        assert (await new).headers[b"x-podium-version"] == b"bot:v3"

    asyncio.run(work())


def test_a_request_is_judged_when_its_body_is_whole() -> None:
    async def work() -> None:
        app = routed()
        newer = RouteMap(Fence(1, 1, 2), {"bot": "bot:v3"}, frozenset())
        body = json.dumps({"model": "bot"}).encode()
        parts = [body[:4], body[4:]]

        async def receive() -> Any:
            part = parts.pop(0)
            if not parts:  # the route moves while the body is on its way
                app.switchboard.apply(newer, app.switchboard.boot)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        await app(scope, receive, send)
        assert dict(sent[0]["headers"])[b"x-podium-version"] == b"bot:v3"

    asyncio.run(work())


def test_a_client_that_leaves_before_its_request_is_whole_is_not_counted() -> None:
    async def work() -> None:
        app = routed()

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError("nobody is there")

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        await app(scope, receive, send)
        assert app.switchboard.state()["in_flight"] == {}

    asyncio.run(work())


def test_the_app_still_hears_that_its_client_has_left() -> None:
    asyncio.run(call(routed(Echo(disconnected=True)), body={"model": "bot"}))


def test_an_answer_that_breaks_off_is_no_longer_in_flight() -> None:
    class Broken:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            raise RuntimeError("broken")

    async def work() -> None:
        app = routed(Broken())
        with pytest.raises(RuntimeError):
            await call(app, body={"model": "bot"})
        assert app.switchboard.state()["in_flight"] == {}

    asyncio.run(work())


@pytest.mark.parametrize(
    "stale",
    [Fence(1, 1, 0), Fence(1, 0, 9), Fence(0, 9, 9)],
    ids=["generation", "epoch", "incarnation"],
)
def test_a_stale_controller_changes_nothing(stale: Fence) -> None:
    async def work() -> None:
        echo = Echo()
        app = routed(echo)
        older = RouteMap(stale, {"bot": "bot:v1"}, frozenset())
        assert (await call(app, "PUT", "/podium/map", map_body(app, older), token=TOKEN)).status == 409
        drain = {"fence": stale.to_json(), "boot": app.switchboard.boot}
        assert (await call(app, "POST", "/podium/drain", drain, token=TOKEN)).status == 409
        assert (await change(app, "/v1/load_lora_adapter", "bot:v3", stale)).status == 409
        assert app.switchboard.map == ROUTES
        assert not echo.seen

    asyncio.run(work())


async def change(app: AliasMiddleware, path: str, name: str, fence: Fence, **more: Any) -> Reply:
    body = {"lora_name": name, "lora_path": "/x", **more}
    value = f"{fence.incarnation}.{fence.epoch}.{fence.generation}".encode()
    size = str(len(json.dumps(body))).encode()
    headers = [(b"x-podium-fence", value), (b"content-length", size)]
    return await call(app, "POST", path, body, token=TOKEN, headers=headers)


def test_the_same_generation_with_another_map_is_refused_and_with_the_same_accepted() -> None:
    app = routed()
    app.switchboard.apply(ROUTES, app.switchboard.boot)
    with pytest.raises(Problem, match="of this generation"):
        app.switchboard.apply(RouteMap(ROUTES.fence, {"bot": "bot:v1"}, frozenset()), app.switchboard.boot)


def test_a_map_for_another_boot_is_refused() -> None:
    app = routed()
    newer = RouteMap(Fence(1, 1, 2), {"bot": "bot:v3"}, frozenset())
    with pytest.raises(Problem, match="This is boot"):
        app.switchboard.apply(newer, "an earlier one")


def test_a_version_that_is_open_or_answering_is_not_unloaded() -> None:
    async def work() -> None:
        hold = asyncio.Event()
        echo = Echo(hold=hold)
        app = routed(echo)
        assert (await change(app, "/v1/unload_lora_adapter", "bot:v1", ROUTES.fence)).status == 409
        running = asyncio.create_task(call(app, body={"model": "bot:v1"}))
        await asyncio.sleep(0)
        closed = RouteMap(Fence(1, 1, 2), {"bot": "bot:v2"}, frozenset())
        app.switchboard.apply(closed, app.switchboard.boot)
        assert (await change(app, "/v1/unload_lora_adapter", "bot:v1", closed.fence)).status == 409
        hold.set()
        await running
        assert (await change(app, "/v1/unload_lora_adapter", "bot:v1", closed.fence)).status == 200

    asyncio.run(work())


def test_nothing_is_loaded_in_place() -> None:
    app = routed()
    reply = asyncio.run(change(app, "/v1/load_lora_adapter", "bot:v2", ROUTES.fence, load_inplace=True))
    assert reply.status == 400


names = st.sampled_from(["bot", "bot:v1", "bot:v2", "other", "bot:v9"])
fences = st.builds(Fence, st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))
maps = st.builds(
    RouteMap,
    fences,
    st.dictionaries(st.sampled_from(["bot", "other"]), st.sampled_from(["bot:v1", "bot:v2"])),
    st.just(frozenset({"bot:v1", "bot:v2"})),
)


@given(st.lists(st.one_of(maps, names, st.integers(0, 5))))
def test_fences_only_rise_and_counts_are_what_was_admitted_less_what_ended(steps: list[Any]) -> None:
    board = Switchboard()
    running: list[str] = []
    highest = Fence(0, 0, 0)
    for step in steps:
        if isinstance(step, RouteMap):
            try:
                board.apply(step, board.boot)
            except Problem:
                assert board.map is not None
                assert step.fence < board.map.fence or step != board.map
            assert board.map is not None
            assert board.map.fence >= highest
            highest = board.map.fence
        elif isinstance(step, str):
            try:
                running.append(board.admit(step))
            except Problem as problem:
                assert problem.status in (404, 503)
        elif running:
            board.finished(running.pop(step % len(running)))
        assert sum(board.in_flight.values()) == len(running)
        assert set(board.in_flight) == set(running)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values), st.integers(1, 5))
def test_all_but_the_model_reaches_the_app_as_it_was_sent(body: dict[str, Any], pieces: int) -> None:
    echo = Echo()
    asyncio.run(call(routed(echo), body={**body, "model": "bot"}, pieces=pieces))
    assert echo.seen == [{**body, "model": "bot:v2"}]
