"""Post-training as one Python file: prepare data once, train, judge; and a sweep that publishes the best.

podium run examples/post_train.py:post_train --base smollm2:v1 --source tickets:v1 --lr 1e-4
podium run examples/post_train.py:sweep --base smollm2:v1 --source tickets:v1 --name ticket-router

Nothing else need be up. When something fails: mend it, then `podium runs recover RUN`; finished steps are
not done again. To try another rate from the training on: `podium runs rerun RUN --from train --set lr=5e-5`.
"""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path

from registry import Adapter, Dataset, Model, Report
from trainers import Checkpoints, OOMError, Resources, TaskEnvironment, gather_map
from trainers.recipes.evaluate import evaluate as judge
from trainers.recipes.sft import sft

cpu = TaskEnvironment("cpu", resources=Resources(cpu=1, memory="1Gi"))
trainer = TaskEnvironment("trainer", resources=Resources(cpu=1, memory="3Gi"))

RANKS = (4, 8)
RATES = (5e-4, 1e-3)


@cpu.task(cache="auto")
def prepare(source: Dataset, examples: int = 200, seed: int = 0) -> Dataset:
    """Draw ``examples`` training examples, each once; the held-out ones stay as they are."""
    folder = Path("prepared")
    folder.mkdir()
    lines = sorted(set((source / "train.jsonl").read_text().splitlines()))
    random.Random(seed).shuffle(lines)
    (folder / "train.jsonl").write_text("\n".join(lines[:examples]) + "\n")
    (folder / "heldout.jsonl").write_text((source / "heldout.jsonl").read_text())
    return Dataset(folder, metadata={"examples": min(examples, len(lines))})


@trainer.task(retries=1)
def train(
    base: Model,
    data: Dataset,
    lr: float = 5e-4,
    rank: int = 8,
    steps: int = 40,
    batch: int = 8,
    checkpoints: Checkpoints | None = None,
) -> Adapter:
    """A LoRA adapter. Its checkpoints outlive the process: an interrupted training goes on at its step."""
    made = sft(
        base, data, rank=rank, alpha=2 * rank, lr=lr, steps=steps, batch=batch, checkpoints=checkpoints
    )
    assert isinstance(made, Adapter)
    return made


@cpu.task
def evaluate(base: Model, adapter: Adapter, data: Dataset) -> Report:
    """Scores of the adapter and of its base on the same held-out examples."""
    return judge(adapter, data, base)


@cpu.task
async def post_train(
    base: Model, source: Dataset, lr: float = 5e-4, rank: int = 8, steps: int = 40
) -> tuple[Adapter, Report]:
    """Prepare, train, evaluate. A training that runs out of memory gets more of it."""
    data = await prepare(source)
    try:
        adapter = await train(base, data, lr=lr, rank=rank, steps=steps)
    except OOMError:
        roomy = train.override(resources=Resources(cpu=1, memory="8Gi"))
        adapter = await roomy(base, data, lr=lr, rank=rank, steps=steps)
    return adapter, await evaluate(base, adapter, data)


@cpu.task
async def sweep(
    base: Model, source: Dataset, name: str = "", steps: int = 40, concurrency: int = 2
) -> dict[str, str | float]:
    """Train each rank with each rate, two at a time; name the adapter that explains the held-out set best."""

    async def arm(rank: int, lr: float) -> tuple[float, Adapter]:
        adapter, report = await post_train(base, source, lr=lr, rank=rank, steps=steps)
        return nll_of(report), adapter

    grid = list(product(RANKS, RATES))
    outcomes = await gather_map(arm, grid, concurrency=concurrency)
    done = [
        (*outcome, rank, lr)
        for outcome, (rank, lr) in zip(outcomes, grid, strict=True)
        if not isinstance(outcome, Exception)
    ]
    if not done:
        raise RuntimeError(f"no arm of {len(grid)} came to an end: {outcomes[0]}")
    nll, best, rank, lr = min(done, key=lambda each: each[0])
    published = best.publish(name) if name else best.value or ""
    return {"best": published, "nll": nll, "rank": rank, "lr": lr, "arms": len(done)}


def nll_of(report: Report) -> float:
    """The mean negative log-likelihood of the held-out completions, in nats a token."""
    return float(json.loads((report / "report.json").read_text())["metrics"]["nll"]["value"])
