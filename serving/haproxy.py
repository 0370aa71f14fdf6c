"""HAProxy as a deployment's `Front`: started, told over its socket, adopted after a restart, replaced.

Its configuration file always says what it routes now, and is written before the process is told: a proxy
that was killed is started again and routes as before.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from serving.child import Child, Record, port_is_free
from serving.errors import EngineUnavailable, StaleController
from serving.front import FrontView
from serving.haproxy_config import (
    BACKEND,
    ServerState,
    answer_of,
    configuration,
    own_statuses,
    server_states,
    shape,
)
from serving.middleware import Fence

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PROXY_LOG", "HAProxy", "find_haproxy"]

_SOCKET = "admin.sock"
_CONFIGURATION = "haproxy.cfg"
_ROUTED = "routed.json"
PROXY_LOG = "proxy.log"
_LONGEST_SOCKET_PATH = 80  # bytes; the kernel takes 107, and HAProxy adds a suffix while it starts
_ANSWER_SECONDS = 5.0
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")  # not on every user's PATH


def find_haproxy(setting: str | None = None) -> str | None:
    """The executable, as it was set, or as it is found; None where there is none."""
    if setting:
        return shutil.which(setting)
    return shutil.which("haproxy") or shutil.which("haproxy", path=os.pathsep.join(_PLACES))


class HAProxy:
    """One proxy on one port, in a folder that survives the controller."""

    def __init__(
        self, folder: Path, executable: str, port: int | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._folder = folder
        self._executable = executable
        self._port = port
        self._host = host
        self._child = Child(folder, PROXY_LOG)

    async def observe(self) -> FrontView:
        self._child.refresh()
        record = self._child.record
        address = f"http://{self._host}:{record.port}" if record else None
        if not self._child.is_alive():
            detail = self._child.last_words() if record and record.pid else ""
            return FrontView(False, address, self._written(), detail=detail)
        try:
            states = await self._states()
        except EngineUnavailable as error:
            return FrontView(False, address, self._written(), detail=error.message)
        routed = {index: state.endpoint for index, state in states.items() if state.gets_requests}
        sessions = {index: state.sessions for index, state in states.items() if state.sessions}
        # One with another configuration counts as down, so that it is told to route, and with that replaced.
        is_current = record is not None and record.fingerprint == self._shape(record)
        return FrontView(is_current, address, routed, sessions)

    def _shape(self, record: Record) -> str:
        return shape(self._port or record.port, self._host)

    async def route(self, backends: Mapping[int, str], fence: Fence) -> None:
        self._check_authority(fence)
        record = self._child.record
        alive = self._child.is_alive()
        if alive and record is not None and record.fingerprint == self._shape(record):
            self._write(record.port, backends, fence)
            await self._tell(backends, fence)
            return
        self._start(backends, fence, beside=alive)
        await self._until_it_routes(backends)

    async def stop(self) -> None:
        self._child.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        while self._child.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(self._child.kill_all)
        self._child.forget()
        if record := self._child.record:
            self._write(record.port, {}, self._read()[1])

    async def close(self) -> None:
        return

    def _check_authority(self, fence: Fence) -> None:
        """Controllers of one machine share the folder: the newer one has left its fence there."""
        written = self._read()[1]
        if fence < written:
            raise StaleController(f"A newer controller routes here: {written}.", remedy="")

    def _start(self, backends: Mapping[int, str], fence: Fence, *, beside: bool) -> None:
        """Start a process; one that runs hands its listening socket over and finishes what it has."""
        old = self._child.record
        same_port = old is not None and self._port in (None, old.port)
        if beside and same_port and old is not None and old.pid is not None:
            self._child.succeed(shape(old.port, self._host))
            record, extra = old, ["-x", _SOCKET, "-sf", str(old.pid)]
        else:
            port = self._port
            record, extra = self._child.prepare(port, "", ""), []
            self._child.note_fingerprint(shape(record.port, self._host))
            if not port_is_free(record.port):
                raise EngineUnavailable(
                    f"Port {record.port} of the deployment is taken by another process.",
                    remedy="End that process, or declare another port.",
                )
        self._write(record.port, backends, fence)
        self._child.spawn(
            [self._executable, "-db", "-C", str(self._folder), "-f", _CONFIGURATION, *extra], _environment()
        )

    async def _until_it_routes(self, backends: Mapping[int, str]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            seen = await self.observe()
            if seen.is_running and dict(seen.routed) == dict(backends):
                return
            if not self._child.is_alive() or time.monotonic() > deadline:
                raise EngineUnavailable(
                    f"HAProxy does not run: {self._child.last_words()}",
                    remedy="Its log says why; 'haproxy -c -f' checks the configuration beside it.",
                )
            await asyncio.sleep(0.02)

    async def _tell(self, backends: Mapping[int, str], fence: Fence) -> None:
        """Change what the running process routes; what comes is added before what goes is taken out.

        Whether a newer controller has come is looked at before each command: this one may have been stopped
        between any two of them. What slips through all the same, the newer one puts right when it looks next.
        """
        states = await self._states()
        for index, endpoint in sorted(backends.items()):
            state = states.get(index)
            if state is None or not state.gets_requests or state.endpoint != endpoint:
                host, _, port = endpoint.removeprefix("http://").rpartition(":")
                server = f"{BACKEND}/r{index}"
                await self._order(f"set server {server} addr {host} port {port}", fence)
                await self._order(f"set server {server} state ready; set server {server} health up", fence)
        for index, state in states.items():
            if index not in backends and state.gets_requests:
                await self._order(f"set server {BACKEND}/r{index} state maint", fence)
        after = {index: s.endpoint for index, s in (await self._states()).items() if s.gets_requests}
        if after != dict(backends):
            raise EngineUnavailable(
                f"HAProxy routes to {after} instead of {dict(backends)}.", remedy="It is told again shortly."
            )

    async def _order(self, command: str, fence: Fence) -> None:
        self._check_authority(fence)
        await self._ask(command)

    async def _states(self) -> dict[int, ServerState]:
        return server_states(await self._ask(f"show stat {BACKEND} 4 -1"))

    async def _ask(self, command: str) -> str:
        """One command to the running process; raises `EngineUnavailable`."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with _short_path(self._folder / _SOCKET) as path:
                    reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(f"{command}\n".encode())
                    return (await reader.read()).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            raise EngineUnavailable(
                f"HAProxy does not answer on its socket: {error or type(error).__name__}.",
                remedy="It is started again.",
            ) from error

    def _write(self, port: int, backends: Mapping[int, str], fence: Fence) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for status in own_statuses():
            (self._folder / f"{status}.json").write_text(json.dumps(answer_of(status)))
        for name, text in (
            (_ROUTED, json.dumps({"fence": fence.to_json(), "backends": dict(backends)})),
            (_CONFIGURATION, configuration(port, backends, self._host)),
        ):
            aside = self._folder / f"{name}.new"
            aside.write_text(text)
            aside.replace(self._folder / name)

    def _written(self) -> dict[int, str]:
        """What was to be routed when the process was told last."""
        return self._read()[0]

    def _read(self) -> tuple[dict[int, str], Fence]:
        try:
            raw = json.loads((self._folder / _ROUTED).read_text())
            backends = {int(index): str(endpoint) for index, endpoint in raw["backends"].items()}
            return backends, Fence(**raw["fence"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}, Fence()


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """A path that fits into a socket's address, also when the folder's own is too long."""
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
