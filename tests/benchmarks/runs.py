"""Pipelines: a durable step beside DBOS and Flyte, recovering a long run, looking a cached step up.

The peers live in an environment of their own (``build/peers``), made the first time with pip.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import ENDED, Cause, Claim, NewOutput, RunRequest
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from tests.benchmarks.measuring import Aim, Row, compare
from tests.common.content import write_dataset
from tests.common.waiting import wait_until
from trainers.asking import Requests
from trainers.driving import Driver
from trainers.submitting import locate, prepare
from trainers.tasks import Task, TaskEnvironment

_PEERS = Path(__file__).parents[2] / "build" / "peers"
_ROUNDS, _STEPS, _LONG, _FILES = 7, 50, 1_000, 10_000
_ROOM = Resources(cpu=64, memory="64Gi")
_env = TaskEnvironment("bench")

# Each measures so many steps at a word on its standard input, and says the median in milliseconds.
_ANSWER = """
import statistics, sys, time
def answer(measure):
    print("ready", flush=True)
    for line in sys.stdin:
        print(1000 * statistics.median(measure(int(line))), flush=True)
"""
_DBOS = """
import tempfile
from dbos import DBOS
DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{tempfile.mkdtemp(dir=sys.argv[1])}/dbos.db",
             "log_level": "ERROR", "run_admin_server": False})
@DBOS.step()
def step(x: int) -> int:
    return x + 1
@DBOS.workflow()
def pipeline(count: int) -> list:
    seconds = []
    for x in range(count):
        begin = time.perf_counter()
        step(x)
        seconds.append(time.perf_counter() - begin)
    return seconds
DBOS.launch()
answer(pipeline)
DBOS.destroy()
"""
_FLYTE = """
import flyte
env = flyte.TaskEnvironment("bench")
@env.task
async def step(x: int) -> int:
    return x + 1
@env.task
async def pipeline(count: int) -> list[float]:
    seconds = []
    for x in range(count):
        begin = time.perf_counter()
        await step(x)
        seconds.append(time.perf_counter() - begin)
    return seconds
flyte.init()
answer(lambda count: flyte.with_runcontext(mode="local").run(pipeline, count=count).outputs()[0])
"""
_LONG_PIPELINE = """
from pathlib import Path
from trainers import TaskEnvironment
env = TaskEnvironment("bench")

@env.task
def step(x: int) -> int:
    return x + 1

@env.task
async def pipeline(steps: int, mended: str) -> int:
    total = 0
    for x in range(steps):
        total += await step(x)
    if not Path(mended).exists():
        raise RuntimeError("not mended yet")
    return total

@env.task(cache="auto")
def prepare(source: "Dataset", seed: int = 0) -> "Dataset":
    return source

@env.task
async def cached(source: "Dataset") -> "Dataset":
    return await prepare(source)
""".replace('"Dataset"', "Dataset").replace("from trainers", "from registry import Dataset\nfrom trainers")


@_env.task(inline=True)
def _step(x: int) -> int:
    return x + 1


def durable_step() -> Iterator[Row]:
    """A step in a process that is there: recorded for good with what it was given and returned.

    Flyte's local steps are recorded nowhere; they are here for what the same call costs without a journal.
    """
    with _place() as folder, _Peer("dbos", _DBOS, folder) as dbos, _Peer("flyte", _FLYTE, folder) as flyte:
        ways = {"ours": _our_steps(folder), "dbos": dbos.measure, "flyte": flyte.measure}
        for way in ways.values():
            way()  # the first is for warming up
        figures: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(_ROUNDS):
            for name in [*ways][turn % 3 :] + [*ways][: turn % 3]:
                figures[name].append(ways[name]())
        medians = {name: statistics.median(each) for name, each in figures.items()}
    yield compare("a durable step / DBOS", medians["ours"], medians["dbos"], "ms", Aim.AT_LEAST, 3.0)
    yield compare(
        "a durable step / Flyte, not durable", medians["ours"], medians["flyte"], "ms", Aim.AT_MOST, 1
    )
    yield _absolute("a durable step", medians["ours"], 1.0, "ms")


def recover_of_a_long_run() -> Iterator[Row]:
    """From `recover` to the end of a run with a thousand finished steps, on a worker that is up."""
    with _place() as folder, _registry(folder) as registry:
        mended = folder / "mended"
        run = _long_run(registry, folder, mended)
        mended.touch()
        with _worker(folder):
            wait_until(lambda: bool(registry.workers.all()), 60, lambda: "a worker")
            begin = time.perf_counter()
            registry.runs.recover(run)
            wait_until(lambda: registry.runs.get(run).state in ENDED, 120, lambda: "its end")
            seconds = time.perf_counter() - begin
        assert registry.runs.get(run).result == sum(range(1, _LONG + 1))
    yield _absolute(f"recover of {_LONG} finished steps", seconds, 2.0, "s")


def cache_lookup() -> Iterator[Row]:
    """Asking for a cached step whose input is a folder of 10,000 files that has not changed."""
    with _place() as folder, _registry(folder) as registry:
        files = {f"{number // 100}/{number}.txt": b"%d" % number for number in range(_FILES)}
        registry.catalog.publish("files", write_dataset(folder / "files", files), "dataset")
        file = folder / "code" / "pipe.py"
        located = locate(registry, f"{file}:cached")
        run = registry.runs.queue(prepare(registry, located, {"source": "files:v1"}))
        (claim,) = registry.runs.claim("bench", free=_ROOM, total=_ROOM)
        acting = registry.acting(claim.origin)
        requests = Requests(acting, claim.run, file.parent)
        task = _task(located)
        places = iter(range(1_000_000))

        def ask() -> Any:
            request = requests.make(task, {"source": "files:v1"}, f"/prepare#{next(places)}")
            return acting.steps.ask(request)

        _finish(
            registry,
            ask().id,
            [NewOutput("result", "dataset", run.inputs[0].digest, value=run.inputs[0].value)],
        )
        seconds = []
        for _ in range(50):
            begin = time.perf_counter()
            assert ask().source is not None
            seconds.append(time.perf_counter() - begin)
    yield _absolute("cache lookup of a 10,000-file folder", 1000 * statistics.median(seconds), 50.0, "ms")


def _absolute(name: str, ours: float, aim: float, unit: str) -> Row:
    return Row(
        f"{name} (aim {aim:g} {unit})", ours, aim, unit, round(ours / aim, 3), "within 1 x", ours <= aim
    )


@contextmanager
def _place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="podium-bench-"))
    (folder / "code").mkdir()
    (folder / "code" / "pipe.py").write_text(_LONG_PIPELINE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _registry(folder: Path) -> Iterator[StoredRegistry]:
    registry = StoredRegistry.open(Settings(home=folder / "home", actor="bench"))
    try:
        yield registry
    finally:
        registry.close()


def _our_steps(folder: Path) -> Callable[[], float]:
    """Executes a pipeline of inline steps in this process; the median step in milliseconds."""
    registry = StoredRegistry.open(Settings(home=folder / "home", actor="bench"))
    (folder / "own").mkdir()
    (folder / "own" / "code").symlink_to(Path(__file__).parent)

    async def pipeline() -> list[float]:
        seconds = []
        for x in range(_STEPS):
            begin = time.perf_counter()
            await _step(x)  # type: ignore[misc]
            seconds.append(time.perf_counter() - begin)
        return seconds

    def measure() -> float:
        registry.runs.queue(RunRequest("pipeline"))
        (claim,) = registry.runs.claim("bench", free=_ROOM, total=_ROOM)
        driver = Driver(registry.acting(claim.origin), claim.run, folder / "own")
        return 1000 * statistics.median(driver.drive(Task(pipeline), {}))

    return measure


class _Peer:
    """A peer's process, which measures when it is asked."""

    def __init__(self, package: str, program: str, folder: Path) -> None:
        python = _PEERS / "bin" / "python"
        if not python.exists():
            venv.create(_PEERS, with_pip=True)
        if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        self._process = subprocess.Popen(
            [python, "-c", _ANSWER + program, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
        )

    def __enter__(self) -> _Peer:
        self._answer("ready")
        return self

    def _answer(self, wanted: str = "") -> str:
        """The next line of its output that is an answer; libraries print lines of their own."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = line.strip()
            if said == wanted or (not wanted and said.replace(".", "", 1).isdigit()):
                return said
        raise RuntimeError("the peer's process has ended")

    def measure(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{_STEPS}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def _long_run(registry: Registry, folder: Path, mended: Path) -> str:
    """A run with a thousand finished steps that has failed after the last."""
    located = locate(registry, f"{folder / 'code' / 'pipe.py'}:pipeline")
    run = registry.runs.queue(prepare(registry, located, {"steps": str(_LONG), "mended": str(mended)}))
    (claim,) = registry.runs.claim("bench", free=_ROOM, total=_ROOM)
    acting, task = registry.acting(claim.origin), located.task
    stop = threading.Event()
    doer = threading.Thread(target=_do_all, args=(registry, stop))
    doer.start()
    (folder / "attempt").mkdir()
    (folder / "attempt" / "code").symlink_to(folder / "code")
    try:
        Driver(acting, claim.run, folder / "attempt").drive(task, {"steps": _LONG, "mended": str(mended)})
    except RuntimeError:
        acting.runs.end(run.id, Cause.ERROR)
    finally:
        stop.set()
        doer.join()
    return run.id


def _do_all(registry: Registry, stop: threading.Event) -> None:
    while not stop.is_set():
        newest = registry.events.position().newest
        for claim in registry.runs.claim("doer", free=_ROOM, total=_ROOM):
            _succeed(registry, claim)
        registry.events.wait(newest, 0.1)


def _succeed(registry: Registry, claim: Claim) -> None:
    registry.acting(claim.origin).runs.finish(claim.run.id, [], result=claim.run.arguments["x"] + 1)


def _finish(registry: Registry, run: str, outputs: list[NewOutput]) -> None:
    (claim,) = registry.runs.claim("doer", free=_ROOM, total=_ROOM)
    assert claim.run.id == run
    registry.acting(claim.origin).runs.finish(run, outputs)


def _task(located: Any) -> Task[..., Any]:
    """The cached task of the file whose pipeline was located."""
    found = vars(sys.modules[located.task.function.__module__])["prepare"]
    assert isinstance(found, Task)
    return found


@contextmanager
def _worker(folder: Path) -> Iterator[None]:
    podium = Path(sys.executable).with_name("podium")
    process = subprocess.Popen(
        [podium, "worker", "--cpu", "2", "--memory", "4Gi", "--gpu", "0"],
        env={"PATH": "/usr/bin:/bin", "PODIUM_HOME": str(folder / "home")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
