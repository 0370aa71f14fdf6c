"""podium's server beside MLflow's: one worker process each, each on an SQLite file of its own, as installed.

The clients are the same for both: bare HTTP over connections that stay open, from threads of this process.
Ours does more at each promotion: it knows who asks by a token, judges gates, and keeps history, event, answer
and a line of the audit trail in one transaction.
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from registry import Registry, Settings, connect
from registry.identity.roles import TeamRole
from registry.wire.headers import IDEMPOTENCY, PREFIX
from serving.child import free_port
from tests.benchmarks.measuring import Aim, Row, compare, interleaved, median_ms, side_by_side
from tests.benchmarks.registry import _MANY, _fill
from tests.common.content import write_adapter
from tests.common.waiting import wait_until

_CLIENTS, _EACH, _BATCHES = 16, 10, 5
_STREAMS = 200
_PAGE_MS, _STREAMS_MS = 50.0, 200.0
_START_SECONDS = 120
_MLFLOW_API = "/api/2.0/mlflow"

Ask = Callable[[], None]


class _Client:
    """One connection that stays open."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self._port, self._headers = port, {"content-type": "application/json", **headers}
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, verb: str, path: str, body: object = None, **headers: str) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        self._connection.request(verb, path, sent, {**self._headers, **headers})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{verb} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)

    def close(self) -> None:
        self._connection.close()


class _Peer:
    """A server that is asked by many: how an alias is set there, and how it is resolved."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self.port, self.headers = port, headers
        self._versions = cycle("21")
        self._numbers = iter(range(10**9))
        self._stack = ExitStack()

    def client(self) -> _Client:
        made = _Client(self.port, self.headers)
        self._stack.callback(made.close)
        return made

    def close(self) -> None:
        self._stack.close()

    def set_alias(self, client: _Client) -> None:
        raise NotImplementedError

    def resolve(self, client: _Client) -> None:
        raise NotImplementedError


class _Podium(_Peer):
    def set_alias(self, client: _Client) -> None:
        key = {IDEMPOTENCY: f"bench-{os.getpid()}-{next(self._numbers)}"}
        path = f"{PREFIX}/versions/router:v{next(self._versions)}/promotions"
        client.ask("POST", path, {"alias": "production"}, **key)

    def resolve(self, client: _Client) -> None:
        client.ask("GET", f"{PREFIX}/versions/router:production")


class _MLflow(_Peer):
    def set_alias(self, client: _Client) -> None:
        body = {"name": "router", "alias": "production", "version": next(self._versions)}
        client.ask("POST", f"{_MLFLOW_API}/registered-models/alias", body)

    def resolve(self, client: _Client) -> None:
        client.ask("GET", f"{_MLFLOW_API}/registered-models/alias?name=router&alias=production")


def beside_mlflow() -> Iterator[Row]:
    """One client after the other, then sixteen at once; and how soon somebody else knows."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="podium-bench-")))
        ours, _ = stack.enter_context(_podium(folder))
        peer = stack.enter_context(_mlflow(folder))
        for title in ("set_alias", "resolve"):
            yield _one_client(title, ours, peer)
            yield _many_clients(title, ours, peer)
        yield _known_elsewhere(ours, peer)


def _one_client(title: str, ours: _Peer, peer: _Peer) -> Row:
    ask, ask_peer = getattr(ours, title), getattr(peer, title)
    client, client_of_peer = ours.client(), peer.client()
    return side_by_side(
        f"{title.replace('_', ' ')} over HTTP, p50 (MLflow's server)",
        lambda: ask(client),
        lambda: ask_peer(client_of_peer),
        rounds=150,
        aim=Aim.AT_LEAST,
        factor=5,
    )


def _many_clients(title: str, ours: _Peer, peer: _Peer) -> Row:
    """Milliseconds that each request takes of the server, while sixteen ask at once."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        seconds = interleaved(
            {"ours": _batch(ours, title, pool), "peer": _batch(peer, title, pool)},
            rounds=_BATCHES,
            warmups=1,
        )
    each = {name: statistics.median(found) * 1000 / (_CLIENTS * _EACH) for name, found in seconds.items()}
    name = f"{title.replace('_', ' ')} over HTTP, {_CLIENTS} clients, time a request (MLflow's server)"
    return compare(name, round(each["ours"], 4), round(each["peer"], 4), "ms", Aim.AT_LEAST, 5)


def _batch(peer: _Peer, title: str, pool: ThreadPoolExecutor) -> Ask:
    clients, ask = [peer.client() for _ in range(_CLIENTS)], getattr(peer, title)

    def many(client: _Client) -> None:
        for _ in range(_EACH):
            ask(client)

    return lambda: list(pool.map(many, clients)).clear()


def _known_elsewhere(ours: _Peer, peer: _Peer) -> Row:
    """From the request to where a subscriber has it: a stream of events, and a webhook."""
    with _stream(ours) as listen, _webhook(peer) as received:
        client, client_of_peer = ours.client(), peer.client()

        def promote() -> None:
            ours.set_alias(client)
            listen()

        def set_alias() -> None:
            peer.set_alias(client_of_peer)
            received()

        seconds = interleaved({"ours": promote, "peer": set_alias}, rounds=60)
    name = "alias set over HTTP to subscriber (MLflow's webhook)"
    return compare(name, median_ms(seconds["ours"]), median_ms(seconds["peer"]), "ms", Aim.AT_LEAST, 10)


@contextmanager
def _stream(peer: _Peer) -> Iterator[Callable[[], None]]:
    """A call waits until the next promotion has come."""
    with _open_stream(peer) as connection:
        reader = connection.makefile("rb")

        def listen() -> None:
            while not reader.readline().startswith(b"event: podium.alias.promoted"):
                pass

        yield listen


@contextmanager
def _open_stream(peer: _Peer) -> Iterator[socket.socket]:
    connection = socket.create_connection(("127.0.0.1", peer.port), timeout=30)
    head = f"GET {PREFIX}/stream/events HTTP/1.1\r\nhost: bench\r\n"
    head += f"authorization: {peer.headers['authorization']}\r\n\r\n"
    connection.sendall(head.encode())
    seen = b""
    while b": podium\n\n" not in seen:  # the first line that a stream says
        seen += connection.recv(4096)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _webhook(peer: _Peer) -> Iterator[Callable[[], None]]:
    """A call waits until MLflow has called once more."""
    called = threading.Semaphore(0)

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            called.release()
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    body = {
        "name": "bench",
        "url": f"http://127.0.0.1:{server.server_port}/",
        "events": [{"entity": "MODEL_VERSION_ALIAS", "action": "CREATED"}],
    }
    client = peer.client()
    client.ask("POST", f"{_MLFLOW_API}/webhooks", body)

    def is_known() -> bool:
        peer.set_alias(client)
        return called.acquire(timeout=0.5)

    try:
        wait_until(is_known, 30, "MLflow knows of its webhook")
        while called.acquire(timeout=1):
            pass

        def received() -> None:
            if not called.acquire(timeout=30):
                raise TimeoutError("MLflow did not call")

        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page_of_many_versions() -> Iterator[Row]:
    """A page of 50 versions of 100,000, and one from the middle, through the server."""
    with TemporaryDirectory(prefix="podium-bench-") as name, _podium(Path(name)) as (ours, registry):
        _fill(registry, _MANY)
        client = ours.client()
        for title, query in (("newest", ""), ("middle", f"&before={_MANY // 2}")):
            path = f"{PREFIX}/artifacts/router/versions?limit=50{query}"
            seconds = interleaved({"ours": lambda path=path: client.ask("GET", path)}, rounds=100)  # type: ignore[misc]
            name = f"page of 50 of {_MANY:,} versions over HTTP, {title} (beside its aim)"
            yield compare(name, median_ms(seconds["ours"]), _PAGE_MS, "ms", Aim.AT_MOST, 1.0)


def promotion_to_many_streams() -> Iterator[Row]:
    """From the request until the last of 200 listeners has the promotion."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="podium-bench-")))
        ours, _ = stack.enter_context(_podium(folder))
        streams = [stack.enter_context(_open_stream(ours)) for _ in range(_STREAMS)]
        client = ours.client()
        seconds = interleaved({"ours": lambda: _reach(ours, client, streams)}, rounds=15)
    name = f"promotion to the last of {_STREAMS} event streams (beside its aim)"
    yield compare(name, median_ms(seconds["ours"]), _STREAMS_MS, "ms", Aim.AT_MOST, 1.0)


def _reach(ours: _Peer, client: _Client, streams: list[socket.socket]) -> None:
    ours.set_alias(client)
    waiting, seen = set(streams), dict.fromkeys(streams, b"")
    while waiting:
        ready, _, _ = select.select(waiting, [], [], 30)
        if not ready:
            raise TimeoutError(f"{len(waiting)} streams have not got it")
        for stream in ready:
            seen[stream] += stream.recv(65536)
            if b"\n\n" in seen[stream].partition(b"event: podium.alias.promoted")[2]:
                waiting.remove(stream)


# The servers


@contextmanager
def _podium(folder: Path) -> Iterator[tuple[_Podium, Registry]]:
    registry = connect(Settings(home=folder / "home", actor="bench"))
    for seed in (1, 2):
        registry.catalog.publish("router", write_adapter(folder / f"v{seed}", seed=seed), "adapter")
    registry.promotions.promote("router:v1", "production")
    token = registry.identity.issue("bench", TeamRole.ADMIN).secret
    port = free_port()
    command = [str(Path(sys.executable).with_name("podium")), "server", "--port", str(port)]
    environment = {**os.environ, "PODIUM_HOME": str(registry.settings.home)}
    with _process(command, environment, folder / "podium.log", port):
        peer = _Podium(port, {"authorization": f"Bearer {token}"})
        try:
            yield peer, registry
        finally:
            peer.close()
            registry.close()


@contextmanager
def _mlflow(folder: Path) -> Iterator[_MLflow]:
    port = free_port()
    command = [str(Path(sys.executable).with_name("mlflow")), "server", "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--port", str(port)]
    command += ["--host", "127.0.0.1"]
    environment = {
        **os.environ,
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
        "MLFLOW_WEBHOOK_CACHE_TTL": "1",  # seconds for which it believes that there is none
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    }
    with _process(command, environment, folder / "mlflow.log", port):
        peer = _MLflow(port, {})
        client = peer.client()
        client.ask("POST", f"{_MLFLOW_API}/registered-models/create", {"name": "router"})
        for seed in (1, 2):
            version = {"name": "router", "source": f"s3://bench/v{seed}"}
            client.ask("POST", f"{_MLFLOW_API}/model-versions/create", version)
        peer.set_alias(client)
        try:
            yield peer
        finally:
            peer.close()


@contextmanager
def _process(command: list[str], environment: dict[str, str], log: Path, port: int) -> Iterator[None]:
    with log.open("ab") as written:
        process = subprocess.Popen(
            command, env=environment, stdout=written, stderr=written, cwd=log.parent, start_new_session=True
        )
    try:
        wait_until(
            lambda: process.poll() is not None or _listens(port), _START_SECONDS, f"{command[1]} listens"
        )
        yield
    finally:
        process.terminate()
        process.wait(40)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
