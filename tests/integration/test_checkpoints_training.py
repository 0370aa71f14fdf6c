"""A training that was interrupted ends with the weights of one that was not, to the last bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from registry import Registry
from registry.errors import InvalidInput
from registry.runs import Cause
from tests.common.attempts import Attempts
from tests.common.registries import Place
from trainers.checkpoints import Checkpoints, Interrupted, resumable
from trainers.recipes.sft import sft

# Libraries of others warn at import; what they warn of is not ours to mend.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]


@pytest.fixture
def place(sqlite_place: Place) -> Place:
    return sqlite_place


@pytest.fixture
def attempts(place: Place, registry: Registry, tmp_path: Path) -> Iterator[Attempts]:
    made = Attempts(place, registry, tmp_path / "work")
    yield made
    made.close()


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Killed(Exception):
    """The process is gone, without a word."""


def digest_of(tensors: dict[str, Any]) -> str:
    """One digest for all numbers of a state dict."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].detach().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


# --- a plain loop

STEPS, EVERY = 9, 3


class Loop:
    """A small model with all that makes a resume go wrong: dropout, momentum, a schedule, random data."""

    def __init__(self) -> None:
        import numpy
        import torch

        torch.manual_seed(7), numpy.random.seed(7), random.seed(7)
        nn = torch.nn
        self.model = nn.Sequential(nn.Embedding(16, 8), nn.Dropout(0.3), nn.Linear(8, 16), nn.BatchNorm1d(16))
        self.model[0].weight.requires_grad = False
        learns = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(learns, lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, STEPS)
        self.done: list[int] = []

    def run(self, checkpoints: Checkpoints | None, after: Callable[[int], None] = lambda _: None) -> str:
        import numpy
        import torch

        states = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        for step in resumable(checkpoints, STEPS, every=EVERY, **states):  # type: ignore[arg-type]
            drawn = [random.randrange(16), int(numpy.random.randint(16)), *torch.randint(16, (4,)).tolist()]
            tokens = torch.tensor(drawn)
            loss = torch.nn.functional.cross_entropy(self.model(tokens), tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            self.done.append(step)
            after(step)
        return digest_of(self.model.state_dict())


@pytest.fixture(scope="module")
def undisturbed() -> str:
    return Loop().run(None)


@pytest.mark.parametrize("at", range(STEPS - 1))
def test_a_plain_loop_stopped_after_any_step_ends_as_if_it_had_not_been(
    attempts: Attempts, undisturbed: str, at: int
) -> None:
    first = Loop()
    with pytest.raises(Interrupted):
        first.run(attempts.begin(), after=lambda step: ask_to_stop() if step == at else None)
    second = Loop()
    assert second.run(attempts.next()) == undisturbed
    assert first.done + second.done == list(range(STEPS))  # no step twice


@pytest.mark.parametrize("at", range(EVERY, STEPS))
def test_a_plain_loop_killed_after_any_step_repeats_one_save_interval_at_most(
    attempts: Attempts, undisturbed: str, at: int
) -> None:
    first = Loop()
    checkpoints = attempts.begin()

    def die(step: int) -> None:
        if step == at:
            checkpoints.flush()  # whether the last save was stored in time is another matter
            raise Killed

    with pytest.raises(Killed):
        first.run(checkpoints, after=die)
    second = Loop()
    assert second.run(attempts.next(Cause.LOST)) == undisturbed
    assert len(first.done) + len(second.done) - STEPS <= EVERY


def test_a_plain_loop_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(
    attempts: Attempts, undisturbed: str
) -> None:
    first = Loop()
    checkpoints = attempts.begin()

    def after(step: int) -> None:
        checkpoints.flush()
        if step == 7:
            ask_to_stop()

    with pytest.raises(Interrupted):
        first.run(checkpoints, after)
    attempts.damage(8, "optimizer.pt")
    second = Loop()
    assert second.run(attempts.next()) == undisturbed
    assert second.done[0] == 6


def test_a_plain_loop_with_another_model_is_refused(attempts: Attempts) -> None:
    import torch

    with pytest.raises(Interrupted):
        Loop().run(attempts.begin(), after=lambda _: ask_to_stop())
    other = Loop()
    with torch.no_grad():
        other.model[0].weight += 1  # the frozen part alone is another
    with pytest.raises(InvalidInput, match="another model"):
        other.run(attempts.next())
    assert other.done == []


def test_a_state_that_the_checkpoint_lacks_is_named(attempts: Attempts) -> None:
    with pytest.raises(Interrupted):
        Loop().run(attempts.begin(), after=lambda _: ask_to_stop())
    other = Loop()
    with pytest.raises(
        InvalidInput, match="no state of 'sampler'; it has model, optimizer, random, scheduler"
    ):
        list(resumable(attempts.next(), STEPS, every=1, model=other.model, sampler=other.scheduler))


def test_a_state_that_could_run_a_program_is_not_loaded(attempts: Attempts) -> None:
    class Sneaky:
        def state_dict(self) -> dict[str, Any]:
            return {"path": Path("/")}  # an object that is no plain value

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError("it was loaded")

    with pytest.raises(Interrupted):
        for _ in resumable(attempts.begin(), 5, every=1, sampler=Sneaky()):
            ask_to_stop()
    with pytest.raises(InvalidInput, match="'sampler' holds more than tensors"):
        list(resumable(attempts.next(), 5, every=1, sampler=Sneaky()))


# --- the Hugging Face Trainer


def make_trainer(base: Path, folder: Path, callbacks: list[Any], steps: int = 33) -> Any:
    """Full training with dropout, accumulation, and epochs that end on a batch that is not full."""
    import datasets
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, set_seed

    set_seed(3)
    model = AutoModelForCausalLM.from_pretrained(base, dtype="float32", attention_dropout=0.2)
    for parameter in model.get_input_embeddings().parameters():
        parameter.requires_grad = False
    rows = [
        {"input_ids": [i % 50 + j for j in range(12)], "labels": [i % 50 + j for j in range(12)]}
        for i in range(21)
    ]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        warmup_steps=3,
        seed=3,
        use_cpu=True,
        save_strategy="no",
        save_total_limit=1,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    data = datasets.Dataset.from_list(rows)
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks)


class Disturb:
    """A callback that counts the steps, and disturbs the training after some of them."""

    def __init__(self, at: int | None, by: Callable[[], None] = ask_to_stop) -> None:
        self.at, self.by, self.done = at, by, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_optimizer_step(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        self.done.append(state.global_step + 1)
        if self.done[-1] == self.at:
            self.by()


@pytest.fixture(scope="module")
def trained(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    trainer = make_trainer(tiny_llama, tmp_path_factory.mktemp("trained"), [])
    trainer.train()
    return digest_of(trainer.model.state_dict())


def attempt(base: Path, checkpoints: Checkpoints, disturb: Disturb, every: int = 4) -> str:
    """Train in one attempt; the digest of the weights when it comes to the end."""
    from trainers.checkpoints import HFCheckpointCallback

    callback = HFCheckpointCallback(checkpoints, every=every)
    trainer = make_trainer(base, checkpoints.folder / "trainer", [callback, disturb])
    trainer.train(resume_from_checkpoint=callback.resume_from(trainer.model))
    return digest_of(trainer.model.state_dict())


def test_ten_preemptions_of_a_trainer_change_no_weight_and_repeat_no_step(
    registry: Registry, attempts: Attempts, tiny_llama: Path, trained: str
) -> None:
    checkpoints = attempts.begin()
    done: list[int] = []
    for at in (1, 2, 5, 6, 10, 11, 16, 21, 29, 32):  # epochs end after 6, 12, ...; saves are at 4, 8, ...
        disturb = Disturb(at)
        with pytest.raises(Interrupted):
            attempt(tiny_llama, checkpoints, disturb)
        done += disturb.done
        checkpoints = attempts.next()
    last = Disturb(None)
    assert attempt(tiny_llama, checkpoints, last) == trained
    assert done + last.done == list(range(1, 34))
    assert registry.runs.get(attempts.run).attempts == 11
    assert len(registry.runs.attempts(attempts.run)) == 11


@pytest.mark.parametrize("at", [9, 12, 14])
def test_a_trainer_killed_between_saves_repeats_one_interval_at_most(
    attempts: Attempts, tiny_llama: Path, trained: str, at: int
) -> None:
    checkpoints = attempts.begin()

    def die() -> None:
        checkpoints.flush()
        raise Killed

    first, second = Disturb(at, die), Disturb(None)
    with pytest.raises(Killed):
        attempt(tiny_llama, checkpoints, first)
    assert attempt(tiny_llama, attempts.next(Cause.LOST), second) == trained
    assert len(first.done) + len(second.done) - 33 <= 4
    assert second.done[0] == (at - 1) // 4 * 4 + 1


def test_a_trainer_that_is_asked_in_its_last_step_finishes(
    attempts: Attempts, tiny_llama: Path, trained: str
) -> None:
    from trainers.checkpoints import preemption

    try:
        assert attempt(tiny_llama, attempts.begin(), Disturb(33)) == trained
        assert preemption._asked.is_set()  # what follows may still be asked about it
    finally:
        preemption._asked.clear()


def test_what_does_not_learn_is_sent_once(registry: Registry, attempts: Attempts, tiny_llama: Path) -> None:
    checkpoints = attempts.begin()
    with pytest.raises(Interrupted):
        attempt(tiny_llama, checkpoints, Disturb(5))
    second, first = registry.checkpoints.of(attempts.run)
    embeddings = 49152 * 64 * 4
    assert first.bytes_sent > embeddings
    assert second.size > embeddings > 4 * second.bytes_sent
    # What was copied in memory and written beside the next step: the Trainer's own save has more.
    names = {file.path for file in registry.catalog.manifest(first.digest).files}
    states = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
    assert names == {"model.safetensors", "config.json", "generation_config.json"} | states


# --- the recipe


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [{"prompt": f"ticket {i} says {i * 7 % 13}", "completion": "ab"[i % 2]} for i in range(10)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("method", ["lora", "qlora", "full"])
def test_sft_that_was_preempted_makes_what_it_would_have_made(
    attempts: Attempts, tiny_llama: Path, data: Path, tmp_path: Path, method: Any
) -> None:
    def train(name: str, checkpoints: Checkpoints | None, stop_at: int | None = None) -> bytes:
        made = sft(
            tiny_llama,
            data,
            output=tmp_path / name,
            method=method,
            rank=2,
            lr=0.01,
            steps=7,
            batch=4,
            save_every=5,
            checkpoints=checkpoints,
            on_log=lambda step, _: ask_to_stop() if step == stop_at else None,
        )
        (weights,) = Path(made).glob("*.safetensors")
        return weights.read_bytes()

    whole = train("whole", None)
    with pytest.raises(Interrupted):
        train("first", attempts.begin(), stop_at=2)  # it hears of it in its third step
    assert train("second", attempts.next()) == whole
    assert not (tmp_path / "first").exists()
    assert "goes on after step 3, saved by attempt 1" in attempts.said


def test_sft_from_another_base_does_not_go_on(
    attempts: Attempts, tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    def train(base: Path, stop_at: int | None = None) -> None:
        sft(
            base,
            data,
            output=tmp_path / "out",
            rank=2,
            steps=4,
            batch=4,
            checkpoints=attempts.begin(),
            on_log=lambda step, _: ask_to_stop() if step == stop_at else None,
        )

    with pytest.raises(Interrupted):
        train(tiny_llama, stop_at=1)
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_llama.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    weights = load_file(other / "model.safetensors")
    save_file({n: t * 1.5 for n, t in weights.items()}, other / "model.safetensors", {"format": "pt"})
    attempts.next()
    with pytest.raises(InvalidInput, match="of another model"):
        train(other)
