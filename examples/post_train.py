"""Post-training as one Python file: prepare data once, train, judge; a sweep; and methods side by side.

podium run examples/post_train.py:post_train --base smollm2:v1 --source tickets:v1 --lr 1e-4
podium run examples/post_train.py:sweep --base smollm2:v1 --source tickets:v1 --name ticket-router
podium run examples/post_train.py:compare --base smollm2:v1 --source tickets:v1

Nothing else need be up. When something fails: mend it, then `podium runs recover RUN`; finished steps are
not done again. To try another rate from the training on: `podium runs rerun RUN --from train --set lr=5e-5`.

Settings are chosen by the validation examples. The held-out ones judge what was chosen, once.
"""

from __future__ import annotations

import json
import random
import shutil
from itertools import product
from pathlib import Path
from typing import Any, Literal

from registry import Adapter, Dataset, Model, Report
from trainers import Checkpoints, OOMError, Resources, TaskEnvironment, gather_map
from trainers.recipes.evaluate import evaluate as judge
from trainers.recipes.sft import sft

Method = Literal["lora", "qlora", "full"]

cpu = TaskEnvironment("cpu", resources=Resources(cpu=1, memory="3Gi"))
trainer = TaskEnvironment("trainer", resources=Resources(cpu=1, memory="3Gi"))

RANKS = (4, 8)
RATES = (5e-4, 1e-3)
#: Each method with a rate that suits it: all weights learn by smaller steps than a few new ones.
METHODS: dict[Method, float] = {"lora": 1e-3, "qlora": 1e-3, "full": 5e-5}


@cpu.task(cache="auto")
def prepare(source: Dataset, examples: int = 200, seed: int = 0) -> Dataset:
    """Draw ``examples`` training examples, each once; what judges stays as it is."""
    folder = Path("prepared")
    folder.mkdir()
    lines = sorted(set((source / "train.jsonl").read_text().splitlines()))
    random.Random(seed).shuffle(lines)
    (folder / "train.jsonl").write_text("\n".join(lines[:examples]) + "\n")
    for split in ("validation", "heldout"):
        shutil.copy(source / f"{split}.jsonl", folder)
    return Dataset(folder, metadata={"examples": min(examples, len(lines))})


@trainer.task(retries=1)
def train(
    base: Model,
    data: Dataset,
    method: Method = "lora",
    lr: float = 5e-4,
    rank: int = 8,
    steps: int = 40,
    batch: int = 8,
    checkpoints: Checkpoints | None = None,
) -> Adapter | Model:
    """What was learned. Its checkpoints outlive the process: an interrupted training goes on at its step."""
    return sft(
        base,
        data,
        method=method,
        rank=rank,
        alpha=2 * rank,
        lr=lr,
        steps=steps,
        batch=batch,
        checkpoints=checkpoints,
    )


@cpu.task
def evaluate(
    base: Model, tuned: Adapter | Model, data: Dataset, split: Literal["validation", "heldout"] = "validation"
) -> Report:
    """Scores of what was trained and of its base on the same examples."""
    return judge(tuned, data, base, split=split)


@cpu.task
async def post_train(
    base: Model,
    source: Dataset,
    method: Method = "lora",
    lr: float = 5e-4,
    rank: int = 8,
    steps: int = 40,
) -> tuple[Adapter | Model, Report]:
    """Prepare, train, evaluate. A training that runs out of memory gets more of it."""
    data = await prepare(source)
    try:
        tuned = await train(base, data, method=method, lr=lr, rank=rank, steps=steps)
    except OOMError:
        roomy = train.override(resources=Resources(cpu=1, memory="8Gi"))
        tuned = await roomy(base, data, method=method, lr=lr, rank=rank, steps=steps)
    return tuned, await evaluate(base, tuned, data)


@cpu.task
async def sweep(
    base: Model, source: Dataset, name: str = "", steps: int = 40, concurrency: int = 2
) -> dict[str, Any]:
    """Train each rank with each rate, two at a time; judge the best on the held-out set, and name it."""

    async def arm(rank: int, lr: float) -> tuple[float, Adapter | Model]:
        tuned, report = await post_train(base, source, lr=lr, rank=rank, steps=steps)
        return scores_of(report)["nll"], tuned

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
    held_out = await evaluate(base, best, await prepare(source), split="heldout")
    return {
        "best": best.publish(name) if name else best.value or "",
        "rank": rank,
        "lr": lr,
        "validation": {"nll": nll},
        "heldout": scores_of(held_out),
        "arms": len(done),
    }


@cpu.task
async def compare(base: Model, source: Dataset, steps: int = 40) -> dict[str, dict[str, float]]:
    """The same pipeline with every method: scores on the validation examples, by method."""

    async def arm(method: Method, lr: float) -> dict[str, float]:
        _, report = await post_train(base, source, method=method, lr=lr, steps=steps)
        return scores_of(report)

    # One after the other: side by side they would take each other's time.
    outcomes = await gather_map(arm, list(METHODS.items()), concurrency=1, cancel_on_error=True)
    return dict(zip(METHODS, outcomes, strict=True))


def scores_of(report: Report) -> dict[str, float]:
    """The scores in a report by metric, such as ``nll``, which is in nats a token."""
    metrics = json.loads((report / "report.json").read_text())["metrics"]
    return {name: float(metric["value"]) for name, metric in metrics.items()}
