"""The guard of one run: a small program between a worker and the task's process.

    worker --control--> guard --starts--> task and all that it starts
           <--status---       --kills --> ... when the worker is gone, or does not confirm the lease in time

Whatever happens to the worker, the guard ends the task's whole tree of processes, daemons among them. It
imports nothing but the standard library and does one thing, so that it starts in milliseconds and does not
hang where a task can: in native code, out of memory, or stopped.

It is given a command to run, reads lines on its standard input, and writes one JSON line on its standard
output when the tree has ended:

    confirm SECONDS     the lease stands; kill the tree at this reading of the boot clock if told no later
    stop SECONDS        ask the task to end (SIGTERM), and kill the tree after so many seconds
    (end of file)       the worker is gone: kill the tree at once

It also keeps the run within its limits: how long it may run, and how much memory its whole tree may take. A
tree that runs too long is asked to end, and killed after a grace; one that takes too much is killed at once:
by the kernel where the run has a control group, and as the guard measures it where it has none.

The task's output, and whatever the guard itself has to complain of, goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def boot_clock() -> float:
    """Seconds since the machine started, those in which it slept among them; the same in all processes."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def prctl(option: int, value: int) -> None:
    """Linux's ``prctl``; elsewhere nothing, and the tree is then killed as a process group only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


#: Seconds between looks at the memory of a tree that has a limit.
_LOOK_SECONDS = 0.1
_NEVER = float("inf")


class Process(Protocol):
    """What a guard needs of the task's own process: as much as a `subprocess.Popen` has."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...


class MemoryGroup:
    """A control group with a limit of its memory, of version 2 or 1, in which a task's tree lives."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._second = os.path.exists(f"{folder}/memory.events")  # noqa: PTH110

    def join(self) -> None:
        """Bring this process in; what it starts from now on is there as well."""
        with open(f"{self.folder}/cgroup.procs", "w") as file:  # noqa: PTH123
            file.write("0")

    def kills(self) -> int:
        """How many of its processes the kernel has ended because the limit was reached."""
        lines = _read(f"{self.folder}/{'memory.events' if self._second else 'memory.oom_control'}")
        counts = dict(line.split() for line in lines.splitlines())
        return int(counts.get("oom_kill", 0))

    def peak(self) -> int:
        """The most bytes that it had; before version 5.19 of Linux what it has now."""
        names = ("memory.peak", "memory.current") if self._second else ("memory.max_usage_in_bytes",)
        found = (f"{self.folder}/{name}" for name in names)
        return int(_read(next(path for path in found if os.path.exists(path))))  # noqa: PTH110

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)  # noqa: PTH106


class Guard:
    """One task's process, what it was told, and when it must end."""

    def __init__(
        self,
        begin: Callable[[MemoryGroup | None], Process],
        deadline: float,
        *,
        seconds: float | None = None,
        grace: float = 5.0,
        memory: int | None = None,
        group: str | None = None,
    ) -> None:
        """``group`` is the folder of a control group that is limited to ``memory`` bytes."""
        self.deadline = deadline
        self.reason = "exited"
        self.numbers: dict[str, float] = {}
        self._began = boot_clock()
        self._allowed = seconds
        self._grace = grace
        self._memory = memory
        self._group = MemoryGroup(group) if group is not None else None
        self._pending = b""
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the tree become our children, not init's
        self.task = begin(self._group)

    def watch(self) -> None:
        """Return when the task's own process has ended, or the tree must be killed."""
        while self.task.poll() is None:
            if self.deadline <= boot_clock():
                self.reason = "unconfirmed" if self.reason == "exited" else self.reason
                return
            if self._takes_too_much():
                self.reason = "out_of_memory"
                return
            if self._time_left() <= 0:
                self._end_for_time()
            wait = min(self.deadline - boot_clock(), self._time_left(), self._look_again())
            ready, _, _ = select.select([0, self._wake], [], [], max(0.0, wait))
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap_orphans()
            if 0 in ready and not self._obey(os.read(0, 4096)):
                self.reason = "abandoned"
                return

    def _obey(self, data: bytes) -> bool:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            verb, _, number = line.partition(b" ")
            if verb == b"confirm" and self.reason == "exited":
                self.deadline = float(number)
            elif verb == b"stop":
                self._ask("stopped", float(number))
        return bool(data)

    def _ask(self, reason: str, grace: float) -> None:
        """Ask the task to end, for the first reason that there is; the shortest grace counts."""
        self.reason = reason if self.reason == "exited" else self.reason
        self.deadline = min(self.deadline, boot_clock() + grace)
        # The task's own process alone: it decides what its helpers, such as data loaders, are to do.
        self.task.terminate()

    def _time_left(self) -> float:
        """Seconds that it may still run; no limit any more when it was asked to end already."""
        if self._allowed is None or self.reason != "exited":
            return _NEVER
        return self._began + self._allowed - boot_clock()

    def _end_for_time(self) -> None:
        self.numbers = {"limit": self._allowed or 0.0, "used": boot_clock() - self._began}
        self._ask("timed_out", self._grace)

    def _look_again(self) -> float:
        return 60.0 if self._memory is None else _LOOK_SECONDS

    def _takes_too_much(self) -> bool:
        """Whether the tree's memory is over its limit, by the exact measure, which takes longer to read."""
        if self._memory is None:
            return False
        if self._group is not None:
            return self._group.kills() > 0
        tree = descendants(os.getpid())
        if sum(map(resident, tree)) <= self._memory:
            return False
        used = sum(map(proportional, tree))
        if used > self._memory:
            self.numbers = {"limit": self._memory, "used": used}
        return used > self._memory

    def _reap_orphans(self) -> None:
        """Collect the dead that the task left to us, all but its own process, whose status is wanted."""
        while sys.platform == "linux":
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if dead is None or dead.si_pid == self.task.pid:
                return
            os.waitpid(dead.si_pid, 0)

    def end(self) -> int:
        """Kill what is left of the tree; the exit status of the task's process, negative for a signal."""
        status = self._kill_tree()
        if self._group is not None:
            if self.reason in ("exited", "out_of_memory") and (kills := self._group.kills()):
                self.reason = "out_of_memory"
                used = self._group.peak()
                self.numbers = {"limit": self._memory or 0, "used": used, "kernel_kills": kills}
            self._group.remove()
        return status

    def _kill_tree(self) -> int:
        if self.task.poll() is None:
            self.task.kill()
        if sys.platform != "linux":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.task.pid, signal.SIGKILL)
        status = self.task.wait()
        # Each round kills our children and so makes theirs our own, until nobody is left.
        while left := children():
            for child in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            # For these alone: those who become ours by their deaths have not been killed yet.
            for child in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, 0)
        return status


def _die_with_guard(group: MemoryGroup | None) -> Callable[[], None]:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    guard = os.getpid()

    def prepare() -> None:
        if library is not None:
            library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guard:  # it died before we asked to be told
                os._exit(1)
        if group is not None:
            group.join()

    return prepare


def _parents() -> dict[int, int]:
    """The parent of each process that has not ended."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - each look is to cost little
        try:
            after_name = _read(f"/proc/{name}/stat").rpartition(")")[2].split()
        except OSError:
            continue
        if after_name[0] != "Z":
            found[int(name)] = int(after_name[1])
    return found


def children() -> list[int]:
    own = os.getpid()
    return [pid for pid, parent in _parents().items() if parent == own]


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        below.setdefault(parent, []).append(child)
    found: list[int] = []
    left = [pid]
    while left:
        children = below.get(left.pop(), [])
        found += children
        left += children
    return found


def resident(pid: int) -> int:
    """Bytes that a process has in memory, shared ones among them; what only mirrors files is free."""
    return _kilobytes(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:"))


def proportional(pid: int) -> int:
    """The same with each shared page divided by those that share it, so that the sum over a tree is right."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _kilobytes(path: str, names: tuple[str, ...]) -> int:
    try:
        lines = _read(path).splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read()


def start(command: list[str], group: MemoryGroup | None) -> subprocess.Popen[bytes]:
    """Begin the task's own process, which dies with its guard; what it prints goes where complaints go."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        process_group=0,
        preexec_fn=_die_with_guard(group),
    )


def attend(guard: Guard) -> None:
    """Guard it to its end, and say how that was."""
    signal.signal(signal.SIGTERM, lambda *_: guard.task.terminate())
    guard.watch()
    status = guard.end()
    said = {"reason": guard.reason, "status": status, "numbers": guard.numbers}
    print(json.dumps(said), flush=True)


def main() -> None:
    deadline, limits, *command = sys.argv[1:]
    attend(Guard(lambda group: start(command, group), float(deadline), **json.loads(limits)))


if __name__ == "__main__":
    main()
