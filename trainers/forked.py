"""An executor whose processes are forked from one that has done the heavy imports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainers.execution import (
    MARK,
    NO_LIMITS,
    Limits,
    ProcessExecution,
    ProcessExecutor,
    group_for,
    to_guard,
)
from trainers.forkserver import HEAVY
from trainers.memory_groups import MemoryGroups, remove

#: What libraries read when they are imported: a fork of a server with other values would go on with those.
_AT_IMPORT = re.compile(
    r"(LD_|PYTHON|OMP_|MKL_|OPENBLAS_|KMP_|GOMP_|MALLOC_|TORCH|PYTORCH_|HF_(?!TOKEN)|TRANSFORMERS_|CUDA_(?!VISIBLE)"
    r"|NCCL_|TOKENIZERS_).*"
)
#: So that no import asks CUDA for its devices, or starts a thread.
_GENTLY = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
#: Runs after which a server is begun: a worker of one run needs none.
_BEGINS_AFTER = 1


class ForkingExecutor:
    """Forks from a server where it can, and starts a process anew where it cannot.

    It cannot before the server is ready, for another interpreter, with another environment of what is read at
    import, and when an import has made the server unsafe.
    """

    def __init__(self, groups: MemoryGroups | None) -> None:
        self._groups = groups
        self._cold = ProcessExecutor(groups)
        self._started = 0
        self._wanted: set[str] = set()
        self._server: _Server | None = None
        self._warming: asyncio.Task[None] | None = None
        self._useless = False

    async def start(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        deadline: float,
        sink: Callable[[bytes], None],
        limits: Limits = NO_LIMITS,
    ) -> ProcessExecution:
        self._started += 1
        program = _program(command)
        server = self._server
        if server is not None and self._warming is None and program and server.suits(environment):
            try:
                return await server.fork(
                    program, folder, environment, deadline, sink, limits, group_for(limits, self._groups)
                )
            except OSError:  # the server is gone, or the environment too large for one packet
                await self._drop()
        elif server is None and self._started > _BEGINS_AFTER and not self._useless and self._warming is None:
            self._warming = asyncio.create_task(self._begin(environment))
        return await self._cold.start(
            command, folder=folder, environment=environment, deadline=deadline, sink=sink, limits=limits
        )

    async def warm(self, packages: Collection[str]) -> None:
        """Have the server import what a run has loaded: the next one is likely to need it as well."""
        new = (HEAVY.keys() & set(packages)) - self._wanted
        self._wanted |= new
        if new and self._server is not None and self._warming is None:
            self._warming = asyncio.create_task(self._load(new))

    async def begin(self, environment: Mapping[str, str], packages: Collection[str] = ()) -> None:
        """Begin the server before it is needed, with what runs will load; the next run is forked from it."""
        self._wanted |= HEAVY.keys() & set(packages)
        self._warming = asyncio.create_task(self._begin(environment))
        await self._warming

    async def ready(self) -> bool:
        """When nothing is being imported: whether runs are forked now."""
        if self._warming is not None:
            await asyncio.shield(self._warming)
        return self._server is not None

    async def close(self) -> None:
        """End the server. What was forked from it goes on."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        await self._drop()

    async def _begin(self, environment: Mapping[str, str]) -> None:
        told = {**environment, **_GENTLY}
        try:
            self._server = await asyncio.to_thread(_Server, told, environment)
        except OSError:
            self._useless = True
            self._warming = None
        else:
            await self._load(set(self._wanted))

    async def _load(self, packages: set[str]) -> None:
        try:
            assert self._server is not None
            modules = [module for package in sorted(packages) for module in HEAVY[package]]
            answer = await asyncio.to_thread(self._server.ask, {"do": "import", "modules": modules})
            unsafe = answer.get("unsafe")
        except OSError as error:
            unsafe = str(error)
        finally:
            self._warming = None
        if unsafe:
            self._useless = True
            await self._drop()

    async def _drop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close)


def _program(command: Sequence[str]) -> list[str]:
    """What the server understands of a command; empty if it is not for this interpreter."""
    if command[0] != sys.executable:
        return []
    rest = [word for word in command[1:2] if word != "-P"] + list(command[2:])
    return rest if rest[:1] in (["-m"], ["-c"]) and len(rest) > 1 else []


class _Server:
    """The worker's end of the fork server."""

    def __init__(self, environment: Mapping[str, str], told: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainers.forkserver", str(theirs.fileno())],
                cwd="/",
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._channel = ours
        self._read_at_import = _read_at_import(told)
        self._turn = asyncio.Lock()

    def suits(self, environment: Mapping[str, str]) -> bool:
        return _read_at_import(environment) == self._read_at_import

    def ask(self, message: Mapping[str, Any], pipes: Sequence[int] = ()) -> dict[str, Any]:
        """Send a message and wait for its answer; `OSError` when the server is gone."""
        socket.send_fds(self._channel, [json.dumps(message).encode()], list(pipes))
        said = self._channel.recv(1 << 16)
        if not said:
            raise ConnectionError("the fork server has ended")
        answer: dict[str, Any] = json.loads(said)
        return answer

    async def fork(
        self,
        program: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        deadline: float,
        sink: Callable[[bytes], None],
        limits: Limits,
        group: Path | None,
    ) -> ProcessExecution:
        mark = uuid.uuid4().hex
        message = {
            "do": "fork",
            "command": list(program),
            "folder": str(folder),
            "environment": {**environment, MARK: mark},
            "deadline": deadline,
            "limits": to_guard(limits, group),
        }
        (told, tell), (hear, say), (printed, print_to) = os.pipe(), os.pipe(), os.pipe()
        try:
            async with self._turn:
                answer = await asyncio.to_thread(self.ask, message, (told, say, print_to))
        except BaseException:
            for pipe in (tell, hear, printed):
                os.close(pipe)
            remove(group)
            raise
        finally:
            for pipe in (told, say, print_to):
                os.close(pipe)
        return ProcessExecution(
            answer["pid"],
            await _writer(tell),
            await _reader(hear),
            await _reader(printed),
            sink,
            mark,
            partial(self._reap, group),
        )

    async def _reap(self, group: Path | None, orderly: bool) -> None:
        """Nothing where the guard did its work; else what it left has become the server's."""
        if orderly:
            return
        with contextlib.suppress(OSError):
            async with self._turn:
                await asyncio.to_thread(self.ask, {"do": "sweep"})
        remove(group)

    def close(self) -> None:
        self._channel.close()
        self._process.kill()  # it may be importing
        self._process.wait()


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if _AT_IMPORT.fullmatch(name)}


async def _reader(pipe: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", 0)
    )
    return reader


async def _writer(pipe: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(pipe, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
