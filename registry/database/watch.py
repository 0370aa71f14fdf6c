"""Waking up when another thread, process or machine has committed an event.

PostgreSQL has LISTEN and NOTIFY. SQLite has nothing of the kind, so a commit sends an empty datagram to the
few sockets on which somebody of this machine may listen (Linux's abstract names, which vanish with their
process). A wake-up may be lost, when the writer is killed between commit and datagram, so waiting also looks
from time to time; it may also be empty. Nobody may conclude more from one than "look again".
"""

from __future__ import annotations

import atexit
import contextlib
import math
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from registry.database.engine import Database, Transaction
from registry.database.statements import sql

CHANNEL = "podium_events"
_SLOTS = 4  # listeners on one SQLite database that are woken; more of them look every _LOOK_SECONDS
_LOOK_SECONDS = 0.1
_POLL_SECONDS = 0.004  # where there are no abstract sockets
_NOTIFY = sql(f"SELECT pg_notify('{CHANNEL}', '')")


class Watch(Protocol):
    """One listener's wait for commits."""

    def wait(self, is_news: Callable[[], bool], timeout: float) -> bool:
        """Block until ``is_news()`` is true, or ``timeout`` seconds; the last answer."""

    def close(self) -> None: ...


def announce(transaction: Transaction, database: Database, database_id: str) -> None:
    """Wake all listeners when ``transaction`` commits."""
    if database.dialect == "postgresql":
        transaction.all(_NOTIFY)
    elif _HAS_ABSTRACT_SOCKETS:
        transaction.after_commit.append(lambda: _send(database_id))


def watch(database: Database, database_id: str) -> Watch:
    """A listener for one thread."""
    if database.dialect == "postgresql":
        return _PostgresqlWatch(database)
    return _SocketWatch(database_id) if _HAS_ABSTRACT_SOCKETS else _PollingWatch()


_HAS_ABSTRACT_SOCKETS = sys.platform.startswith("linux")
_sender: socket.socket | None = None
_sender_lock = threading.Lock()


def _address(database_id: str, slot: int) -> str:
    return f"\0podium-{database_id}-{slot}"


def _send(database_id: str) -> None:
    global _sender
    with _sender_lock:
        if _sender is None:
            _sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            _sender.setblocking(False)
            atexit.register(_sender.close)
        for slot in range(_SLOTS):
            # Nobody listens there, or a listener has wake-ups enough waiting: both are fine.
            with contextlib.suppress(OSError):
                _sender.sendto(b"", _address(database_id, slot))


class _SocketWatch:
    def __init__(self, database_id: str) -> None:
        self._socket: socket.socket | None = None
        for slot in range(_SLOTS):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.setblocking(False)
            try:
                listener.bind(_address(database_id, slot))
            except OSError:
                listener.close()
                continue
            self._socket = listener
            break

    def wait(self, is_news: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not is_news():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(min(left, _LOOK_SECONDS))
        return True

    def _sleep(self, seconds: float) -> None:
        if self._socket is None:
            time.sleep(min(seconds, _POLL_SECONDS))
            return
        looking = select.poll()  # select() knows descriptors below 1024 alone
        looking.register(self._socket, select.POLLIN)
        looking.poll(math.ceil(seconds * 1000))
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def __del__(self) -> None:
        self.close()  # its thread has ended


class _PollingWatch:
    def wait(self, is_news: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not is_news():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def close(self) -> None:
        """Nothing is held."""


class _PostgresqlWatch:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Any = None

    def wait(self, is_news: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        connection = self._listening()  # before the first look, so that no commit falls between
        while not is_news():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(connection, left)
        return True

    def _listening(self) -> Any:
        import psycopg

        if self._connection is None or self._connection.closed:
            url = self._database.url.set(drivername="postgresql").render_as_string(hide_password=False)
            try:
                self._connection = psycopg.connect(url, autocommit=True)
                self._connection.execute(f"LISTEN {CHANNEL}")
            except psycopg.Error:
                self._connection = None
        return self._connection

    def _sleep(self, connection: Any, seconds: float) -> None:
        import psycopg

        if connection is None:
            time.sleep(min(seconds, _LOOK_SECONDS))
            return
        try:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error:
            self.close()
            time.sleep(min(seconds, _LOOK_SECONDS))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()  # its thread has ended
