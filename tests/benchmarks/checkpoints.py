"""What it costs a training to be kept: LoRA on SmolLM2, a checkpoint each 10 steps."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from registry.resources import Resources
from registry.runs import RunRequest
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from tests.benchmarks.measuring import Aim, Row, compare
from tests.common import models
from trainers.checkpoints.series import Checkpoints

_EVERY, _ROUNDS = 10, 5
_WAYS = ("none", "own", "ours")


def training_with_checkpoints() -> Iterator[Row]:
    """Ten steps with a checkpoint, beside ten without, and ten with the Trainer's own save to the disk.

    Training goes on beside the saving, whose end is waited for in the same ten steps. Ours ends digested,
    durable and recorded in the store; the Trainer's own save stays in the page cache.
    """
    folder = Path(tempfile.mkdtemp(prefix="podium-bench-"))
    try:
        seconds = _measure(folder)
    finally:
        shutil.rmtree(folder)
    name = f"{_EVERY} training steps with a checkpoint /"
    yield compare(f"{name} without", seconds["ours"], seconds["none"], "s", Aim.AT_MOST, 1.03)
    yield compare(f"{name} the Trainer's own save", seconds["ours"], seconds["own"], "s", Aim.AT_MOST, 1.0)


def _measure(folder: Path) -> dict[str, float]:
    """Median seconds of each way's blocks of steps in one training, in which the ways take turns."""
    turns = _Turns(_checkpoints(folder))
    trainer = _trainer(models.kept("smollm2"), folder / "trainer", turns)
    trainer.train()
    # The first round warms up.
    return {way: round(statistics.median(turns.seconds[way][1:]), 3) for way in _WAYS}


class _Turns:
    """A Trainer's callback. The first step of each block is saved, as the block's way wants it.

    So what goes on in the background does so beside the other steps of the same block, whose time ends when
    it is done.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.seconds: dict[str, list[float]] = {way: [] for way in _WAYS}
        from trainers.checkpoints.trainer_state import snapshot

        self._snapshot = snapshot
        self._checkpoints = checkpoints
        self._begin = 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    @staticmethod
    def _way(step: int) -> str:
        turn, block = divmod(step // _EVERY, len(_WAYS))
        return _WAYS[(block + turn) % len(_WAYS)]

    def on_step_begin(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        if state.global_step % _EVERY == 0:
            self._begin = time.perf_counter()

    def on_step_end(self, _: Any, state: Any, control: Any, **parts: Any) -> None:
        way = self._way(state.global_step - 1)
        if state.global_step % _EVERY == 1:
            control.should_save = way == "own"
            if way == "ours":
                self._checkpoints.save_soon(state.global_step, self._snapshot(state, control, parts))
        if state.global_step % _EVERY == 0:
            self._checkpoints.flush()
            self.seconds[way].append(time.perf_counter() - self._begin)


def _checkpoints(folder: Path) -> Checkpoints:
    """Those of a run that is carried out now, in a registry of its own."""
    registry = StoredRegistry.open(Settings(home=folder / "home", actor="bench"))
    room = Resources(cpu=1)
    run = registry.runs.queue(RunRequest("train", resources=room)).id
    (claim,) = registry.runs.claim("bench", free=room, total=room, only=run)
    return Checkpoints(registry.acting(claim.origin), run, folder / "work", say=lambda _: None)


def _trainer(base: Path, folder: Path, turns: _Turns) -> Any:
    import datasets
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, set_seed

    # As with an accelerator, one core is free for other work.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))
    set_seed(0)
    config = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16), config)
    rows = [{"input_ids": list(range(i, i + 64)), "labels": list(range(i, i + 64))} for i in range(64)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=_EVERY * len(_WAYS) * (_ROUNDS + 1),
        per_device_train_batch_size=2,
        learning_rate=1e-4,
        use_cpu=not torch.accelerator.is_available(),
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        save_total_limit=2,
    )
    data = datasets.Dataset.from_list(rows)
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=[turns])  # type: ignore[list-item]
