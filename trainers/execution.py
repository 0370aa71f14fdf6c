"""Carrying out a run on this machine: a child process of its own session, behind a guard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import psutil

from trainers import guard
from trainers.memory_groups import MemoryGroups, remove

_PIECE = 256 * 1024
MARK = "PODIUM_EXECUTION"  # in the environment of all processes of an execution: which one it is


class Ending(StrEnum):
    """How an execution came to its end."""

    EXITED = "exited"  # the task's process ended by itself
    STOPPED = "stopped"  # it was asked to end, and did or was killed
    UNCONFIRMED = "unconfirmed"  # killed because its lease was not confirmed in time
    ABANDONED = "abandoned"  # killed because its worker was gone
    TIMED_OUT = "timed_out"  # it ran longer than it may: asked to end, and did or was killed
    OUT_OF_MEMORY = "out_of_memory"  # killed because it took more memory than it may


@dataclass(frozen=True, slots=True)
class Ended:
    ending: Ending
    status: int  # exit status of the task's process; negative: the signal that ended it
    numbers: Mapping[str, float] = field(default_factory=dict)  # "limit", "used" ..., where a limit ended it


@dataclass(frozen=True, slots=True)
class Limits:
    """What an execution is kept within; None is no limit."""

    seconds: float | None = None  # that it may run
    grace: float = 5.0  # seconds to end by itself when they are over
    memory: int | None = None  # bytes, of all its processes together


NO_LIMITS = Limits()


class Execution(Protocol):
    """One attempt that is carried out somewhere. All of it is ended with it, whatever it has started."""

    async def confirm(self, deadline: float) -> None:
        """Say that the lease stands. It ends itself at that reading of the boot clock if told no later."""

    async def stop(self, grace: float) -> None:
        """Ask it to end, and end it after ``grace`` seconds."""

    def kill(self) -> None:
        """End it now."""

    async def wait(self) -> Ended:
        """Its end. Nothing of it lives, and all that it printed has been given to the sink."""


class Executor(Protocol):
    """Somewhere to carry out attempts."""

    async def start(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        deadline: float,
        sink: Callable[[bytes], None],
        limits: Limits = NO_LIMITS,
    ) -> Execution:
        """Begin. ``command`` runs in ``folder``; ``deadline`` is as for `Execution.confirm`."""


class ProcessExecutor:
    """Child processes of this one, in ``groups`` of the kernel's where they have a limit of their memory."""

    def __init__(self, groups: MemoryGroups | None) -> None:
        self._groups = groups

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
        mark = uuid.uuid4().hex
        group = group_for(limits, self._groups)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", guard.__file__, str(deadline)),
            json.dumps(to_guard(limits, group)),
            *command,
            cwd=folder,
            env={**environment, MARK: mark},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a signal from the terminal is for the worker, which then ends its runs
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None

        async def reap(orderly: bool) -> None:
            await process.wait()
            remove(group)

        return ProcessExecution(process.pid, process.stdin, process.stdout, process.stderr, sink, mark, reap)


def group_for(limits: Limits, groups: MemoryGroups | None) -> Path | None:
    """A new control group for what has a limit of its memory; None where that is watched by the guard."""
    if limits.memory is None or groups is None:
        return None
    try:
        return groups.make(limits.memory)
    except OSError:  # such as no more groups than so many; it is watched like anywhere else
        return None


def to_guard(limits: Limits, group: Path | None) -> dict[str, Any]:
    """Limits as a guard is told them."""
    return {**asdict(limits), "group": None if group is None else str(group)}


class ProcessExecution:
    """An execution behind a guard of this machine, whoever has started that."""

    def __init__(
        self,
        pid: int,
        ear: asyncio.StreamWriter,
        said: asyncio.StreamReader,
        printed: asyncio.StreamReader,
        sink: Callable[[bytes], None],
        mark: str,
        reap: Callable[[bool], Awaitable[None]],
    ) -> None:
        """``reap`` collects the guard when it has ended; it is told whether the guard had done its work."""
        self.pid = pid  # the guard's process id, which is the id of the session
        self._ear = ear
        self._said = said
        self._mark = mark
        self._reap = reap
        self._reading = asyncio.ensure_future(_read(printed, sink))

    async def confirm(self, deadline: float) -> None:
        await self._tell(f"confirm {deadline}")

    async def stop(self, grace: float) -> None:
        await self._tell(f"stop {grace}")

    async def _tell(self, line: str) -> None:
        with contextlib.suppress(ConnectionError):  # it has ended; `wait` says how
            self._ear.write(f"{line}\n".encode())
            await self._ear.drain()

    def kill(self) -> None:
        """Close the guard's ear, at which it kills the tree; wake it in case it is stopped."""
        self._ear.close()
        if not self._said.at_eof():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
        _kill_left(self.pid, self._mark)

    async def wait(self) -> Ended:
        said = await self._said.read()  # ends with the guard
        # The guard itself may have been killed; the task died with it, but not what the task had started.
        # That may hold the pipe of its output open, and asyncio waits for a process until its pipes are shut.
        await asyncio.to_thread(_kill_left, self.pid, self._mark)
        await self._reap(bool(said))
        await self._reading
        self._ear.close()
        if not said:
            return Ended(Ending.EXITED, -signal.SIGKILL)
        last = json.loads(said)
        return Ended(Ending(last["reason"]), last["status"], last["numbers"])


async def _read(printed: asyncio.StreamReader, sink: Callable[[bytes], None]) -> None:
    while data := await printed.read(_PIECE):
        sink(data)


def _kill_left(session: int, mark: str) -> None:
    """Kill the processes of an execution, but not its guard (the session's leader), until none is left."""
    while left := [process for process in psutil.process_iter() if _belongs(process, session, mark)]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _belongs(process: psutil.Process, session: int, mark: str) -> bool:
    """Whether it is of the session, or carries the mark: a daemon has left the session, but not its marks."""
    try:
        if process.pid == session or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return os.getsid(process.pid) == session or process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False
