"""How long it takes until a run's process has what it needs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.measuring import Aim, Row, compare, interleaved, median_ms
from trainers.execution import Ending, Executor, ProcessExecutor
from trainers.forked import ForkingExecutor
from trainers.guard import boot_clock

_NEEDS = "import torch; from transformers import AutoModelForCausalLM; from trl import SFTConfig, SFTTrainer"


def start_of_a_training() -> Iterator[Row]:
    """From a worker's request to the end of a process that has torch, transformers and TRL."""
    with TemporaryDirectory() as name, asyncio.Runner() as runner:
        forking, cold = ForkingExecutor(None), ProcessExecutor(None)
        runner.run(forking.begin(dict(os.environ), ["torch", "transformers", "trl"]))
        assert runner.run(forking.ready())
        work = {
            "ours": lambda: runner.run(_carry(forking, Path(name))),
            "peer": lambda: runner.run(_carry(cold, Path(name))),
        }
        seconds = interleaved(work, rounds=5, warmups=1)
        runner.run(forking.close())
    yield compare(
        "start a step with torch and TRL (a cold process)",
        median_ms(seconds["ours"]),
        median_ms(seconds["peer"]),
        "ms",
        Aim.AT_LEAST,
        10,
    )


async def _carry(executor: Executor, folder: Path) -> None:
    execution = await executor.start(
        [sys.executable, "-P", "-c", _NEEDS],
        folder=folder,
        environment=dict(os.environ),
        deadline=boot_clock() + 300,
        sink=lambda _: None,
    )
    ended = await execution.wait()
    assert (ended.ending, ended.status) == (Ending.EXITED, 0), ended
