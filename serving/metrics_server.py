"""Where Prometheus asks: ``/metrics`` on an address of its own, for as long as controllers run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from registry.errors import Unavailable

__all__ = ["metrics_at"]


@contextmanager
def metrics_at(address: str | None) -> Iterator[str | None]:
    """Serve this room's metrics at ``HOST:PORT`` while the block runs; its URL. None: nowhere.

    Raises:
        Unavailable: the address cannot be had.
    """
    if address is None:
        yield None
        return
    from prometheus_client import start_http_server

    from serving.metrics import REGISTRY

    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", REGISTRY)
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"Metrics cannot be served at {address}: {error}.", remedy="Name a free one in PODIUM_METRICS."
        ) from error
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
