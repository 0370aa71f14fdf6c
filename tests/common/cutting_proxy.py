"""A proxy that breaks connections half way through an answer."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class CuttingProxy(socketserver.ThreadingTCPServer):
    """Passes everything on to ``endpoint``, but ends ``times`` connections after ``after`` bytes of answer.

    Use it as a context manager; its own address is ``url``, and ``left`` says how often it will still cut.
    """

    daemon_threads = False  # so that leaving the block waits for every connection to end

    def __init__(self, endpoint: str, *, after: int, times: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = (urlsplit(endpoint).hostname, urlsplit(endpoint).port)
        self.after = after
        self.left = times
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._open: set[socket.socket] = set()

    def __enter__(self) -> CuttingProxy:
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        for each in list(self._open):
            _end(each)
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: CuttingProxy

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as behind:
            self.server._open |= {self.request, behind}
            asking = threading.Thread(target=self._pass_on, args=(self.request, behind))
            asking.start()
            self._pass_on(behind, self.request, cuts=True)
            asking.join()
            self.server._open -= {self.request, behind}

    def _pass_on(self, source: socket.socket, target: socket.socket, *, cuts: bool = False) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                passed += len(data)
                if cuts and self.server.left and passed > self.server.after:
                    self.server.left -= 1
                    break
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
