"""Running the app: uvicorn in a thread with an event loop of its own, on a socket that is bound first."""

from __future__ import annotations

import ipaddress
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from fastapi import FastAPI

from registry.errors import InvalidSetting

_STOP_SECONDS = 5


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any that is free.

    Raises:
        InvalidSetting: the address cannot be had.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except OSError as error:
        raise InvalidSetting(
            f"The server cannot listen on {host}:{port}: {error.strerror or error}.",
            remedy="Name another with --host and --port, or end what listens there.",
        ) from error
    return listener


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Running:
    """A server that runs from when it is made until `stop`."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=_STOP_SECONDS,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,  # longer than clients keep theirs
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Let running requests end, for some seconds, and return when all has ended."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
