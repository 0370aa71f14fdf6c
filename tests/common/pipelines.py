"""A pipeline for tests: its steps leave a line outside for each execution, and wait where told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from registry.protocol import Registry
from registry.runs import Run
from tests.common.waiting import wait_until
from tests.common.workers import wait_for_end
from trainers.submitting import locate, prepare

CODE = '''
"""A pipeline, and what it calls. ``outside`` is a folder of the test's."""

import asyncio, os, time
from pathlib import Path

from registry import Dataset
from trainers import Resources, TaskEnvironment, gather_map, now, random

cpu = TaskEnvironment("cpu", resources=Resources(cpu=1))
WORDS = 3

def began(outside, name):
    with open(Path(outside) / "executions", "a") as lines:
        lines.write(f"{name} {os.getpid()}\\n")
    wait = Path(outside) / f"wait-{name}"
    while wait.exists():
        time.sleep(0.01)
    if (Path(outside) / f"fail-{name}").exists():
        raise ValueError(f"{name} was told to fail")

def drives(outside):
    (Path(outside) / "driver").write_text(str(os.getpid()))

def words(text):
    return f"{text} " * WORDS

@cpu.task(cache="auto")
def cached(text: str, outside: str) -> Dataset:
    began(outside, f"cached-{text}")
    Path("made").mkdir()
    Path("made/data.txt").write_text(words(text))
    return Dataset("made")

@cpu.task
def prepare(text: str, outside: str) -> Dataset:
    began(outside, "prepare")
    Path("made").mkdir()
    Path("made/data.txt").write_text(words(text))
    return Dataset("made", metadata={"words": WORDS})

@cpu.task
def train(data: Dataset, outside: str, lr: float = 1.0, name: str = "train") -> tuple[Dataset, float]:
    began(outside, name)
    Path("tuned").mkdir()
    Path("tuned/weights.txt").write_text(f"{(data / 'data.txt').read_text()}{lr}")
    return Dataset("tuned"), lr

@cpu.task
def evaluate(model: Dataset, outside: str, name: str = "evaluate") -> float:
    began(outside, name)
    return float((model / "weights.txt").read_text().split()[-1])

@cpu.task
async def post_train(outside: str, text: str = "dog", lr: float = 1.0) -> dict:
    drives(outside)
    data = await prepare(text, outside)
    model, _ = await train(data, outside, lr=lr)
    score = await evaluate(model, outside)
    return {"model": model, "score": score}

@cpu.task
async def sweep(outside: str, rates: list[float]) -> list[float]:
    data = await cached("sweep", outside)
    async def arm(lr):
        model, _ = await train(data, outside, lr=lr, name=f"train-{lr}")
        return await evaluate(model, outside, name=f"evaluate-{lr}")
    return await gather_map(arm, rates, concurrency=4)

@cpu.task
async def nested(outside: str, lr: float = 1.0) -> list:
    """Two pipelines in one, and what follows from both."""
    scores = [(await post_train(outside, text=text, lr=lr))["score"] for text in ("dog", "cat")]
    return [*scores, await unlike(outside)]

@cpu.task
async def deep(outside: str, depth: int) -> int:
    return 1 + await deep(outside, depth - 1) if depth else 0

@cpu.task
async def equal(outside: str, count: int) -> list[str]:
    """Branches that ask for the very same, and each get their own."""
    drives(outside)
    return await gather_map(lambda _: unlike(outside), range(count), concurrency=3)

@cpu.task
def unlike(outside: str) -> str:
    began(outside, "unlike")
    return os.urandom(8).hex()

@cpu.task
async def drawn(outside: str) -> list:
    drives(outside)
    first = [str(now()), random(), random()]
    await evaluate_nothing(outside)
    return [*first, random()]

@cpu.task(inline=True)
def small(x: int, outside: str) -> int:
    began(outside, f"small-{x}")
    return 2 * x

@cpu.task
async def inlined(outside: str) -> int:
    drives(outside)
    total = 0
    for x in range(5):
        total += await small(x, outside)
    await evaluate_nothing(outside)
    return total

@cpu.task
def evaluate_nothing(outside: str) -> None:
    began(outside, "nothing")

@cpu.task
async def caught(outside: str) -> str:
    try:
        await evaluate_nothing(outside)
    except ValueError as error:
        return f"caught {error}"
    return "not"
'''


class Pipelines:
    """`CODE` as a file, and the folder outside that its steps write to."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self._registry = registry
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.file = folder / "code" / "pipe.py"
        self.file.parent.mkdir()
        self.file.write_text(CODE)

    def queue(self, task: str, **arguments: Any) -> Run:
        located = locate(self._registry, f"{self.file}:{task}")
        given = {"outside": str(self.outside), **arguments}
        return self._registry.runs.queue(prepare(self._registry, located, given))

    def executions(self) -> list[str]:
        """What steps have left, once for each execution."""
        return [name for name, _ in self._lines()]

    def _lines(self) -> list[tuple[str, int]]:
        path = self.outside / "executions"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(name, int(pid)) for name, pid in map(str.split, lines)]

    def process_of(self, name: str) -> psutil.Process:
        """The process of the last execution of a step, or of the ``driver``."""
        if name == "driver":
            return psutil.Process(int((self.outside / "driver").read_text()))
        return psutil.Process([pid for each, pid in self._lines() if each == name][-1])

    def tell(self, what: str, name: str) -> None:
        """Have the step of that name ``wait`` or ``fail``."""
        (self.outside / f"{what}-{name}").touch()

    def let(self, what: str, name: str) -> None:
        """Take back what `tell` said."""
        (self.outside / f"{what}-{name}").unlink()

    def wait_for(self, name: str, count: int = 1) -> None:
        wait_until(lambda: self.executions().count(name) >= count, 60, lambda: str(self.executions()))

    def end(self, run: Run, timeout: float = 90.0) -> Run:
        return wait_for_end(self._registry, run.id, timeout)
