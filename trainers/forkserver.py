"""The fork server of one worker: a process that has done the heavy imports, and forks the next run from them.

    worker --socket--> fork server --forks--> guard of a run --forks--> the run's program

It has one thread, opens nothing and never touches CUDA, so that what is forked from it is as good as new. The
guard that it forks is that of `trainers.guard`, and ends the tree in the same cases. Orphans of a guard that
was killed itself become the fork server's, which kills them.

Messages are JSON, one a packet:

    {"do": "import", "modules": [...]}                   answered with {"ok": true} or {"unsafe": why}
    {"do": "fork", "command": [...], ...} and three pipes: the guard's stdin, stdout, stderr; {"pid": N}
    {"do": "sweep"}                                      kill what killed guards have left; {"ok": true}
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import runpy
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from trainers import guard

_PACKET = 1 << 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: What a package's users really load of it: its own top is often empty until something is asked of it.
HEAVY = {
    "datasets": ("datasets",),
    "peft": ("peft",),
    "torch": ("torch",),
    "transformers": (
        "transformers.trainer",
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto",
    ),
    "trl": ("trl.trainer.sft_trainer",),
}
#: A thread of the allocator's, which takes care of forks itself.
_HARMLESS_THREADS = {"jemalloc_bg_thd"}


def main() -> NoReturn:
    channel = socket.socket(fileno=int(sys.argv[1]))
    guard.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    guard.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _import(["trainers.child"])
    # It is run as a program, as `python -m` would; what it imports stays.
    sys.modules.pop("trainers.child", None)
    guards: set[int] = set()
    while True:
        data, pipes, _, _ = socket.recv_fds(channel, _PACKET, 3)
        if not data:
            os._exit(0)
        _collect(guards)
        said = json.loads(data)
        if said["do"] == "fork":
            answer = _fork(said, pipes, channel, guards)
        elif said["do"] == "import":
            answer = _import(said["modules"])
        else:
            answer = _sweep(guards)
        channel.send(json.dumps(answer).encode())


def _import(modules: list[str]) -> dict[str, Any]:
    for module in modules:
        with contextlib.suppress(Exception):  # a task that needs it will say what is wrong with it
            import_module(module)
    gc.collect()
    gc.freeze()  # pages that no collection writes to stay shared
    unsafe = _unsafe()
    return {"unsafe": unsafe} if unsafe else {"ok": True}


def _unsafe() -> str:
    """Why nothing may be forked from this process; empty where it may."""
    names = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    names -= {Path("/proc/self/comm").read_text().strip(), *_HARMLESS_THREADS}
    if threading.active_count() > 1 or names:
        return f"threads were started by an import: {', '.join(sorted(names)) or 'of Python'}"
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if torch.cuda.is_initialized():
        return "CUDA was initialised by an import"
    pid = os.fork()
    if pid == 0:
        os._exit(1 if torch.cuda._is_in_bad_fork() else 0)
    return "CUDA was asked for its devices by an import" if os.waitpid(pid, 0)[1] else ""


def _collect(guards: set[int]) -> None:
    """Collect the guards that have ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        guards.discard(pid)


def _sweep(guards: set[int]) -> dict[str, Any]:
    """Kill what is left of guards that are dead, until nothing is."""
    while left := [pid for pid in guard.children() if pid not in guards]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    return {"ok": True}


def _fork(said: dict[str, Any], pipes: list[int], channel: socket.socket, guards: set[int]) -> dict[str, Any]:
    pid = os.fork()
    if pid == 0:
        try:
            channel.close()
            _become_guard(said, pipes)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    for pipe in pipes:
        os.close(pipe)
    guards.add(pid)
    return {"pid": pid}


def _become_guard(said: dict[str, Any], pipes: list[int]) -> NoReturn:
    os.setsid()
    for target, pipe in enumerate(pipes):
        os.dup2(pipe, target)
        os.close(pipe)
    os.chdir(said["folder"])
    os.environ.clear()
    os.environ.update(said["environment"])
    command = said["command"]
    begin = guard.Guard(lambda group: _Forked(command, group), said["deadline"], **said["limits"])
    guard.attend(begin)
    os._exit(0)


class _Forked:
    """A program that runs in a fork of this process, with what a `subprocess.Popen` would have."""

    def __init__(self, command: list[str], group: guard.MemoryGroup | None) -> None:
        parent = os.getpid()
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _become_task(command, parent, group)
            finally:
                os._exit(1)

    def poll(self) -> int | None:
        return self._look(os.WNOHANG)

    def wait(self) -> int:
        status = self._look(0)
        assert status is not None
        return status

    def _look(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _become_task(command: list[str], parent: int, group: guard.MemoryGroup | None) -> NoReturn:
    guard.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    if group is not None:
        group.join()
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.closerange(3, 256)
    _forget_chance()
    status = _run(command)
    for end in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        with contextlib.suppress(Exception):
            end()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _forget_chance() -> None:
    """Each fork begins with the same random state; a new process would have one of its own."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _run(command: list[str]) -> int:
    """Do what ``python -m MODULE ARGUMENTS`` or ``python -c CODE`` would; its exit status."""
    kind, what, *arguments = command
    sys.argv = [what if kind == "-m" else "-c", *arguments]
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
