"""A small real HTTP server that keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Taken:
    """One request: its path, its headers by their names in lower case, its body."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Receiver:
    """``statuses`` are the next answers, after which it answers 204. ``headers`` go with each."""

    url: str = ""
    taken: list[Taken] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    says: bytes = b""

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a port of the loopback interface."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            named = {name.lower(): value for name, value in self.headers.items()}
            receiver.taken.append(Taken(self.path, named, body))
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            if receiver.says:
                self.send_header("content-length", str(len(receiver.says)))
            self.end_headers()
            self.wfile.write(receiver.says)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
