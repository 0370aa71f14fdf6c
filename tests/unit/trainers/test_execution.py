"""Carrying out a command: real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.common.waiting import wait_until
from trainers.execution import NO_LIMITS, Ended, Ending, Limits, ProcessExecution, ProcessExecutor
from trainers.forked import ForkingExecutor
from trainers.guard import boot_clock
from trainers.memory_groups import MemoryGroups, memory_groups

# A task that writes its own number and those of what it starts: a child, and a daemon with its own session.
TREE = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
daemon = os.fork()
if daemon == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    open("daemon", "w").write(str(os.getpid()))
    time.sleep(600)
os.waitpid(daemon, 0)
while not os.path.exists("daemon") or not open("daemon").read():
    time.sleep(0.01)
open("tree.part", "w").write(f"{os.getpid()} {child.pid} {open('daemon').read()}")
os.rename("tree.part", "tree")
time.sleep(600)
"""


class Carried:
    """An execution in a folder, and what it printed."""

    def __init__(self, execution: ProcessExecution, folder: Path, printed: list[bytes]) -> None:
        self.execution = execution
        self.folder = folder
        self.printed = printed

    @property
    def guard(self) -> psutil.Process:
        return psutil.Process(self.execution.pid)

    async def tree(self) -> list[int]:
        """The processes of `TREE`, once all of them are there."""
        found = await asyncio.to_thread(wait_until, self._tree, 20, "the tree is there")
        return [int(pid) for pid in found.split()]

    def _tree(self) -> str:
        path = self.folder / "tree"
        return path.read_text() if path.exists() else ""


async def _cold() -> ProcessExecutor:
    return ProcessExecutor(_groups[0])


async def _forking() -> ForkingExecutor:
    executor = await warmed()
    _left.append(executor)
    return executor


EXECUTORS = {"processes": _cold, "forks": _forking}
_kind = ["processes"]
_groups: list[MemoryGroups | None] = [None]
_left: list[ForkingExecutor] = []


async def warmed(*packages: str) -> ForkingExecutor:
    """An executor that forks the next run."""
    executor = ForkingExecutor(_groups[0])
    await executor.begin(dict(os.environ), packages)
    assert await executor.ready()
    return executor


@pytest.fixture(params=list(EXECUTORS), autouse=True)
def kind(request: pytest.FixtureRequest) -> str:
    """Each test is one of what all executors do."""
    _kind[0] = request.param
    return str(request.param)


@pytest.fixture(params=["by the kernel", "by its guard"])
def limited(request: pytest.FixtureRequest) -> Iterator[MemoryGroups | None]:
    """Each test of memory is one of both ways to limit it."""
    groups = memory_groups() if request.param == "by the kernel" else None
    if groups is None and request.param == "by the kernel":
        pytest.skip("this process may make no control groups")
    _groups[0] = groups
    yield groups
    _groups[0] = None
    if groups is not None:
        assert not list(groups.parent.glob(f"podium-{os.getpid()}-*"))  # none is left


def run(
    folder: Path,
    code: str,
    then: Callable[[Carried], Awaitable[None]] | None = None,
    *,
    lives: float = 60.0,
    limits: Limits = NO_LIMITS,
) -> tuple[Ended, bytes]:
    """Carry out Python code, do something meanwhile, and return how it ended and what it printed."""

    async def carry() -> tuple[Ended, bytes]:
        printed: list[bytes] = []
        executor = await EXECUTORS[_kind[0]]()
        execution = await executor.start(
            [sys.executable, "-c", code],
            folder=folder,
            environment=dict(os.environ),
            deadline=boot_clock() + lives,
            sink=printed.append,
            limits=limits,
        )
        try:
            if then is not None:
                await then(Carried(execution, folder, printed))
            ended = await asyncio.wait_for(execution.wait(), 60)
        except BaseException:
            execution.kill()
            await execution.wait()
            raise
        finally:
            while _left:
                await _left.pop().close()
        return ended, b"".join(printed)

    return asyncio.run(carry())


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and _lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: gone(pids), 20, lambda: f"of {pids} some live")


@pytest.mark.parametrize(
    ("code", "status"),
    [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_the_status_is_that_of_the_task(tmp_path: Path, code: str, status: int) -> None:
    assert run(tmp_path, code)[0] == Ended(Ending.EXITED, status)


def test_all_that_is_printed_arrives_byte_by_byte(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40_000); print('end', file=sys.stderr)"
    _, printed = run(tmp_path, code)
    assert printed == bytes(range(256)) * 40_000 + b"end\n"


def test_what_a_task_leaves_running_ends_with_it(tmp_path: Path) -> None:
    pids: list[int] = []

    async def then(carried: Carried) -> None:
        pids.extend(await carried.tree())
        os.kill(pids[0], signal.SIGKILL)

    ended, _ = run(tmp_path, TREE, then)
    assert ended.ending is Ending.EXITED
    assert gone(pids)


def test_it_ends_itself_when_its_lease_is_not_confirmed(tmp_path: Path) -> None:
    pids: list[int] = []

    async def then(carried: Carried) -> None:
        pids.extend(await carried.tree())
        await carried.execution.confirm(boot_clock())

    ended, _ = run(tmp_path, TREE, then)
    assert ended == Ended(Ending.UNCONFIRMED, -signal.SIGKILL)
    assert gone(pids)


def test_a_confirmation_lets_it_live_on(tmp_path: Path) -> None:
    async def then(carried: Carried) -> None:
        await carried.execution.confirm(boot_clock() + 60)

    ended, _ = run(tmp_path, "import time; time.sleep(1.5)", then, lives=1.0)
    assert ended == Ended(Ending.EXITED, 0)


def test_a_stop_lets_the_task_end_by_itself(tmp_path: Path) -> None:
    code = """
import signal, sys, time
def stop(*_):
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""

    async def then(carried: Carried) -> None:
        await asyncio.to_thread(wait_until, lambda: b"ready\n" in b"".join(carried.printed), 20, "ready")
        await carried.execution.stop(30)

    assert run(tmp_path, code, then) == (Ended(Ending.STOPPED, 3), b"ready\nsaved\n")


def test_a_task_that_ignores_the_stop_is_killed_after_its_grace(tmp_path: Path) -> None:
    code = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""

    async def then(carried: Carried) -> None:
        await asyncio.to_thread(wait_until, lambda: b"ready\n" in b"".join(carried.printed), 20, "ready")
        await carried.execution.stop(0.2)

    assert run(tmp_path, code, then)[0] == Ended(Ending.STOPPED, -signal.SIGKILL)


def test_a_kill_ends_the_tree_also_when_all_of_it_is_stopped(tmp_path: Path) -> None:
    pids: list[int] = []

    async def then(carried: Carried) -> None:
        pids.extend(await carried.tree())
        for pid in (carried.execution.pid, *pids):
            os.kill(pid, signal.SIGSTOP)
        carried.execution.kill()

    run(tmp_path, TREE, then)
    assert gone(pids)


def test_the_task_dies_with_its_guard(tmp_path: Path) -> None:
    pids: list[int] = []

    async def then(carried: Carried) -> None:
        pids.extend(await carried.tree())
        carried.guard.kill()

    ended, _ = run(tmp_path, TREE, then)
    assert ended.status == -signal.SIGKILL
    assert gone(pids)


def test_the_tree_dies_when_the_worker_is_killed(tmp_path: Path, kind: str) -> None:
    worker = f"""
import asyncio, os, sys
from pathlib import Path
from trainers.execution import ProcessExecutor
from trainers.forked import ForkingExecutor
from trainers.guard import boot_clock
from trainers.memory_groups import MemoryGroups, memory_groups
async def main():
    executor = ProcessExecutor(None)
    if {kind!r} == "forks":
        executor = ForkingExecutor(None)
        await executor.begin(dict(os.environ))
    execution = await executor.start(
        [sys.executable, "-c", {TREE!r}], folder=Path({str(tmp_path)!r}), environment=dict(os.environ),
        deadline=boot_clock() + 600, sink=lambda data: None)
    await execution.wait()
asyncio.run(main())
"""
    process = psutil.Popen([sys.executable, "-P", "-c", worker])
    tree = tmp_path / "tree"
    wait_until(tree.exists, 20, "the tree is there")
    pids = [int(pid) for pid in tree.read_text().split()]
    process.kill()
    process.wait()
    wait_until_gone(pids)


# Each of two processes takes half of it: none alone is over the limit.
HUNGRY = """
import os, time
helper = os.fork()
block = bytearray(os.urandom(1)) * (60 * 2**20)
time.sleep(600)
"""


def test_a_tree_that_takes_more_memory_than_it_may_is_ended_with_the_numbers(
    tmp_path: Path, limited: MemoryGroups | None
) -> None:
    ended, _ = run(tmp_path, HUNGRY, limits=Limits(memory=100 * 2**20))
    assert (ended.ending, ended.status) == (Ending.OUT_OF_MEMORY, -signal.SIGKILL)
    assert ended.numbers["limit"] == 100 * 2**20
    if limited is None:
        assert ended.numbers["used"] > ended.numbers["limit"]
    else:  # it never had more than it may
        assert 90 * 2**20 < ended.numbers["used"] <= ended.numbers["limit"]
        assert ended.numbers["kernel_kills"] >= 1


def test_memory_that_is_taken_faster_than_anybody_can_look_is_not_had(tmp_path: Path) -> None:
    """What only the kernel can do."""
    groups = memory_groups()
    if groups is None:
        pytest.skip("this process may make no control groups")
    code = "block = bytearray(1) * (400 * 2**20); open('got', 'w').close()"
    _groups[0] = groups
    try:
        ended, _ = run(tmp_path, code, limits=Limits(memory=100 * 2**20))
    finally:
        _groups[0] = None
    assert ended.ending is Ending.OUT_OF_MEMORY
    assert not (tmp_path / "got").exists()


@pytest.mark.usefixtures("limited")
def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    code = """
import os, time
block = bytearray(os.urandom(1)) * (60 * 2**20)
helpers = [os.fork() for _ in range(2)]
if all(helpers):
    time.sleep(1.5)
    os._exit(0)
time.sleep(600)
"""
    ended, _ = run(tmp_path, code, limits=Limits(memory=100 * 2**20))
    assert ended == Ended(Ending.EXITED, 0)


@pytest.mark.usefixtures("limited")
def test_files_that_are_mapped_cost_nothing(tmp_path: Path) -> None:
    code = """
import mmap, os
with open("big", "w+b") as file:
    file.truncate(200 * 2**20)
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        total = sum(mapped[i] for i in range(0, len(mapped), 4096))
        import time; time.sleep(0.5)
"""
    ended, _ = run(tmp_path, code, limits=Limits(memory=100 * 2**20))
    assert ended == Ended(Ending.EXITED, 0)


def test_a_task_that_runs_longer_than_it_may_is_asked_and_then_killed(tmp_path: Path) -> None:
    code = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
while True:
    time.sleep(1)
"""
    ended, printed = run(tmp_path, code, limits=Limits(seconds=1.0, grace=0.5))
    assert (ended.ending, ended.status, printed) == (Ending.TIMED_OUT, -signal.SIGKILL, b"asked\n")
    assert ended.numbers["limit"] == 1.0 <= ended.numbers["used"]


def test_a_task_that_ends_by_itself_when_its_time_is_over_was_still_too_long(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "import time; time.sleep(600)", limits=Limits(seconds=0.5, grace=30))
    assert (ended.ending, ended.status) == (Ending.TIMED_OUT, -signal.SIGTERM)


def test_a_confirmation_does_not_prolong_the_grace(tmp_path: Path) -> None:
    async def then(carried: Carried) -> None:
        await carried.execution.confirm(boot_clock() + 600)

    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    ended, _ = run(tmp_path, code, then, limits=Limits(seconds=0.5, grace=0.2))
    assert ended.ending is Ending.TIMED_OUT


def test_the_next_run_is_forked_from_what_was_loaded(tmp_path: Path, kind: str) -> None:
    _, printed = run(
        tmp_path, "import sys, random; print('trainers.forkserver' in sys.modules, random.random())"
    )
    _, again = run(
        tmp_path, "import sys, random; print('trainers.forkserver' in sys.modules, random.random())"
    )
    assert printed.startswith(str(kind == "forks").encode())
    assert printed != again  # no two forks begin with the same chance


def test_a_forked_program_sees_its_own_arguments_folder_and_environment(tmp_path: Path, kind: str) -> None:
    code = "import os, sys; print(sys.argv, os.getcwd(), os.environ['HOME'], __name__, sys.stdin.read())"
    _, printed = run(tmp_path, code)
    assert printed.decode() == f"['-c'] {tmp_path} {os.environ['HOME']} __main__ \n"


@pytest.mark.parametrize(
    ("name", "forked"), [("OMP_NUM_THREADS", False), ("MY_OWN", True), ("HF_TOKEN", True)]
)
def test_a_run_whose_environment_is_read_at_import_gets_a_process_of_its_own(
    tmp_path: Path, kind: str, name: str, forked: bool
) -> None:
    if kind != "forks":
        pytest.skip("a process of its own is all that there is")
    code = f"import os, sys; print('trainers.forkserver' in sys.modules, os.environ[{name!r}])"

    async def carry() -> bytes:
        printed: list[bytes] = []
        executor = await warmed()
        execution = await executor.start(
            [sys.executable, "-P", "-c", code],
            folder=tmp_path,
            environment={**os.environ, name: "7"},
            deadline=boot_clock() + 60,
            sink=printed.append,
        )
        await execution.wait()
        await executor.close()
        return b"".join(printed)

    assert asyncio.run(carry()).decode() == f"{forked} 7\n"


def test_a_killed_server_is_not_missed(tmp_path: Path, kind: str) -> None:
    if kind != "forks":
        pytest.skip("there is no server")

    async def carry() -> list[Ended]:
        before = psutil.Process().children()
        executor = await warmed()
        (server,) = [child for child in psutil.Process().children() if child not in before]
        common = {"folder": tmp_path, "environment": dict(os.environ), "deadline": boot_clock() + 60}
        command = [sys.executable, "-c", "import time; time.sleep(1)"]
        first = await executor.start(command, sink=lambda _: None, **common)
        server.kill()
        second = await executor.start(command, sink=lambda _: None, **common)
        ended = [await first.wait(), await second.wait()]
        await executor.close()
        return ended

    assert asyncio.run(carry()) == [Ended(Ending.EXITED, 0)] * 2
