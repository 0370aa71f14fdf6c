"""Where Prometheus asks: ``/metrics`` on an address of its own, for as long as controllers run.

``/metrics/DEPLOYMENT/REPLICA`` passes on what that engine says of itself, which clients do not reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from registry.errors import NotFound, Unavailable
from serving.metrics import REGISTRY, engine_metrics

__all__ = ["metrics_at"]

_SCRAPE_SECONDS = 30  # for a client to send its request


@contextmanager
def metrics_at(address: str | None) -> Iterator[str | None]:
    """Serve this room's metrics at ``HOST:PORT`` while the block runs; its URL. None: nowhere.

    Raises:
        Unavailable: the address cannot be had.
    """
    if address is None:
        yield None
        return
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), _Handler)
    except OSError as error:
        raise Unavailable(
            f"Metrics cannot be served at {address}: {error}.", remedy="Name a free one in PODIUM_METRICS."
        ) from error
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = _SCRAPE_SECONDS

    def do_GET(self) -> None:  # the name that the standard library calls
        status, body = _answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("content-type", CONTENT_TYPE_LATEST if status == 200 else "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A scrape every few seconds is no news."""


def _answer(path: str) -> tuple[int, bytes]:
    match path.strip("/").split("/"):
        case ["metrics"]:
            return 200, generate_latest(REGISTRY)
        case ["metrics", deployment, replica] if replica.isdigit():
            try:
                return 200, engine_metrics(deployment, int(replica)).encode()
            except NotFound as error:
                return 404, error.message.encode()
            except Unavailable as error:
                return 503, error.message.encode()
        case _:
            return 404, b"See /metrics."
