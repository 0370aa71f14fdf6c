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
from pathlib import Path

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


class Guard:
    """One task's process, what it was told, and when it must end."""

    def __init__(self, command: list[str], deadline: float) -> None:
        self.deadline = deadline
        self.reason = "exited"
        self._pending = b""
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the tree become our children, not init's
        self.task = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            process_group=0,
            preexec_fn=_die_with_guard(),
        )

    def watch(self) -> None:
        """Return when the task's own process has ended, or the tree must be killed."""
        while self.task.poll() is None:
            wait = self.deadline - boot_clock()
            if wait <= 0:
                self.reason = self.reason if self.reason == "stopped" else "unconfirmed"
                return
            ready, _, _ = select.select([0, self._wake], [], [], min(wait, 60.0))
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
            if verb == b"confirm" and self.reason != "stopped":
                self.deadline = float(number)
            elif verb == b"stop":
                self.reason = "stopped"
                self.deadline = min(self.deadline, boot_clock() + float(number))
                # The task's own process alone: it decides what its helpers, such as data loaders, are to do.
                self.task.terminate()
        return bool(data)

    def _reap_orphans(self) -> None:
        """Collect the dead that the task left to us, all but its own process, whose status is wanted."""
        while sys.platform == "linux":
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if dead is None or dead.si_pid == self.task.pid:
                return
            os.waitpid(dead.si_pid, 0)

    def kill_tree(self) -> int:
        """Kill what is left of the tree; the exit status of the task's process, negative for a signal."""
        if self.task.poll() is None:
            self.task.kill()
        if sys.platform != "linux":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.task.pid, signal.SIGKILL)
        status = self.task.wait()
        # Each round kills our children and so makes theirs our own, until nobody is left.
        while children := _children():
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            while _reap():
                pass
        return status


def _die_with_guard() -> Callable[[], None]:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    guard = os.getpid()

    def prepare() -> None:
        if library is not None:
            library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guard:  # it died before we asked to be told
                os._exit(1)

    return prepare


def _children() -> list[int]:
    own = os.getpid()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after_name[1]) == own and after_name[0] != "Z":
            found.append(int(folder.name))
    return found


def _reap() -> bool:
    """Collect one dead child, waiting for it; False when there is none."""
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return False
    return bool(_children())


def main() -> None:
    deadline, *command = sys.argv[1:]
    guard = Guard(command, float(deadline))
    signal.signal(signal.SIGTERM, lambda *_: guard.task.terminate())
    guard.watch()
    status = guard.kill_tree()
    print(json.dumps({"reason": guard.reason, "status": status}), flush=True)


if __name__ == "__main__":
    main()
