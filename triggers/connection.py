"""Connections to NATS: where it is, as whom, and how its errors read."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from registry.errors import BrokerUnavailable
from registry.settings import Settings
from triggers.errors import ServerNotRunning

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 5
_PING_SECONDS = 3
_RETRY_SECONDS = 0.1


class Role(StrEnum):
    RELAY = "relay"  # may publish events and manage streams
    READER = "reader"  # may only read them


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach NATS."""

    url: str = field(repr=False)  # of one server, or of several with commas; may hold a password
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def server_file(home: Path) -> Path:
    """Where the embedded server of a PODIUM_HOME says how to reach it."""
    return home / "nats.json"


def find_address(settings: Settings, role: Role) -> Address:
    """The outside NATS of ``PODIUM_NATS``, or the server that a ``podium up`` of this home runs.

    Raises:
        ServerNotRunning: neither is there.
    """
    if settings.nats is not None:
        return Address(settings.nats.get_secret_value())
    try:
        stated = json.loads(server_file(settings.home).read_text())
        user = stated["users"][role.value]
        address = Address(f"nats://127.0.0.1:{stated['port']}", user["name"], user["password"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_running(settings.home) from error
    if not _is_alive(stated.get("owner")):
        raise _not_running(settings.home)
    return address


def _not_running(home: Path) -> ServerNotRunning:
    return ServerNotRunning(
        f"No event server runs for {home}.",
        remedy="Start 'podium up', or set PODIUM_NATS to the address of a NATS server.",
    )


def _is_alive(owner: Any) -> bool:
    """Whether the process that wrote the file still runs: its number alone may have been given away again."""
    from registry.processes import Process

    return isinstance(owner, dict) and Process.from_json(owner).is_alive


class Connection:
    """One connection that is made when it is first needed and again when the server has moved."""

    def __init__(self, find: Callable[[], Address], *, name: str = "podium") -> None:
        self._find = find
        self._name = f"{name} {os.getpid()}"
        self._address: Address | None = None
        self._client: Client | None = None
        self._lock = asyncio.Lock()
        self._waiting: dict[asyncio.Task[Any], bool] = {}  # task -> whether it was told to give up
        self.on_reconnect: list[Callable[[], None]] = []

    async def client(self) -> Client:
        """A client that is connected now.

        Raises:
            BrokerUnavailable: it cannot be reached.
        """
        if self._client is not None and self._client.is_connected:
            return self._client
        async with self._lock:
            address = self._find()
            if self._client is not None and (self._client.is_closed or address != self._address):
                await self._drop()
            if self._client is None:
                self._client = await self._connect(address)
                self._address = address
            if not self._client.is_connected:
                raise BrokerUnavailable("The event server is not reachable at the moment.", remedy=_REMEDY)
            return self._client

    async def close(self) -> None:
        async with self._lock:
            await self._drop()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            await client.close()

    async def _connect(self, address: Address) -> Client:
        client = Client()
        servers = [server.strip() for server in address.url.split(",")]
        errors = 0
        # With endless reconnecting the first attempt would never give up by itself: an error for each server
        # ends it.
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def on_error(error: Exception) -> None:
            nonlocal errors
            errors += 1
            log.debug("nats: %s", str(error) or type(error).__name__)  # refused permissions show only here
            if errors >= len(servers) and not failed.done():
                failed.set_exception(error)

        attempt = asyncio.ensure_future(client.connect(servers, **self._options(address, on_error)))
        with translated():
            try:
                done, _ = await asyncio.wait(
                    (attempt, failed), timeout=_CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    raise TimeoutError("it does not answer")
                done.pop().result()
            except BaseException:
                attempt.cancel()
                await client.close()
                raise
            finally:
                # From now on errors are the connection's own business: it connects again by itself.
                failed.cancel()
        return client

    def _options(self, address: Address, on_error: Callable[[Exception], Awaitable[None]]) -> dict[str, Any]:
        return {
            "user": address.user,
            "password": address.password,
            "name": self._name,
            "connect_timeout": _CONNECT_SECONDS,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": _RETRY_SECONDS,
            "ping_interval": _PING_SECONDS,
            "max_outstanding_pings": 2,
            "error_cb": on_error,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._reconnected,
        }

    async def waiting(self, call: Awaitable[T]) -> T:
        """The result of ``call``, which waits for an answer of the server.

        The client library lets a request run into its timeout when the connection is lost under it; this
        gives it up at once. Its effect is then unknown.

        Raises:
            BrokerUnavailable: the connection was lost meanwhile.
        """
        # A task of its own for each call would cost as much as the call: this one is cancelled, as
        # `asyncio.timeout` does it.
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = False
        try:
            return await call
        except asyncio.CancelledError:
            if self._waiting[task] and task.cancelling() <= 1:
                raise BrokerUnavailable(
                    "The connection to the event server was lost.", remedy=_REMEDY
                ) from None
            raise
        finally:
            if self._waiting.pop(task):
                task.uncancel()

    async def _disconnected(self) -> None:
        for task, given_up in self._waiting.items():
            if not given_up:
                self._waiting[task] = True
                task.cancel()

    async def _reconnected(self) -> None:
        for call in self.on_reconnect:
            call()


_REMEDY = (
    "Promotions still work; their events wait in the database. See that 'podium up' or PODIUM_NATS runs."
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the NATS client into `BrokerUnavailable`."""
    try:
        yield
    except (nats.errors.Error, TimeoutError, OSError) as error:
        text = str(error) or type(error).__name__
        raise BrokerUnavailable(f"The event server did not answer: {text}.", remedy=_REMEDY) from error
