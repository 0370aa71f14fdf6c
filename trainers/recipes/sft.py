"""Supervised fine-tuning: teach a base model the completions of a dataset.

    adapter = sft(base, data, output=folder)                              # LoRA
    adapter = sft(base, data, output=folder, method="qlora")              # over a base in 4 bits
    model = sft(base, data, output=folder, method="full", lr=2e-5)        # every weight

Only the completions are learned: prompt tokens carry no loss. The loop is TRL's `SFTTrainer`.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from registry.artifacts import Adapter, Artifact, Dataset, Model
from registry.errors import InvalidInput
from trainers.checkpoints.series import Checkpoints
from trainers.parameters import check_plain
from trainers.progress import Pace, say, say_step
from trainers.recipes.amounts import Amount, Count, CountOrNone
from trainers.recipes.content import named
from trainers.recipes.examples import Example, read_examples
from trainers.recipes.quiet import quiet_progress

if TYPE_CHECKING:
    from datasets import Dataset as TrainingTable
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

    from trainers.checkpoints.huggingface import HFCheckpointCallback

METHODS = ("lora", "qlora", "full")

#: Called with each step and what the trainer logged at it: ``loss``, ``learning_rate``, ``epoch`` and more.
OnLog = Callable[[int, Mapping[str, float]], None]


def sft(
    base: Model | str | os.PathLike[str],
    data: Dataset | str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] = "trained",
    method: Literal["lora", "qlora", "full"] = "lora",
    rank: Count = 16,
    alpha: Count = 32,
    lr: Amount = 2e-4,
    epochs: Amount = 1.0,
    steps: Count | None = None,
    batch: Count = 8,
    max_length: Count = 512,
    seed: CountOrNone = 0,
    save_every: CountOrNone = 20,
    checkpoints: Checkpoints | None = None,
    on_log: OnLog | None = None,
) -> Adapter | Model:
    """Train on ``train.jsonl`` of ``data`` and save what was learned into the folder ``output``.

    base: the model that is tuned; its weights stay as they are, but for ``method="full"``
    data: a data set whose ``train.jsonl`` has prompts, or messages, and completions
    method: lora saves an adapter; qlora too, with the base in 4 bits meanwhile (NF4); full saves a model
    rank: width of the adapter in each linear layer
    alpha: the adapter's weight is ``alpha / rank``
    lr: peak of a linear schedule that warms up for a tenth of the steps
    epochs: passes over the examples, where ``steps`` does not say
    steps: batches that are taken, 1 or more
    batch: examples in a batch
    max_length: tokens; what is longer is cut at the end
    seed: of the order of the examples and the adapter's first weights
    save_every: steps after which the state is kept for another attempt; 0 for never

    Inside a run the state is kept after each ``save_every`` steps (0 for never) and when the worker is asked
    to stop; the run's next attempt goes on there and ends with the weights that it would have had.

    Raises ``InvalidContent`` when ``data`` has no usable ``train.jsonl``, ``InvalidInput`` for another
    ``method``, one whose library is not here, an amount that cannot be, or when training diverges.
    """
    check_plain(sft, locals())
    if method not in METHODS:
        raise InvalidInput(f"There is no method {method!r}.", remedy=f"Use {', '.join(METHODS)}.")
    examples = read_examples(data, "train")
    say(f"loading torch, transformers and TRL to train on {len(examples)} examples")

    quiet_progress()
    import torch
    from peft import LoraConfig
    from transformers import AutoConfig, AutoTokenizer, PrinterCallback, set_seed
    from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # loaded when it is asked for

    set_seed(seed)
    base_dtype = AutoConfig.from_pretrained(str(base)).dtype or torch.float32
    # A frozen base may stay in half precision. Weights that learn may not: small updates would be lost.
    dtype = torch.float32 if method == "full" else base_dtype
    say(f"loading the base {named(base)}")
    model = _load(base, dtype, in_4_bits=method == "qlora")
    tokenizer = AutoTokenizer.from_pretrained(str(base))
    lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    callbacks: list[Any] = [_log_to(on_log or say_step)]
    kept = _keep_in(checkpoints, save_every, callbacks)
    with tempfile.TemporaryDirectory(dir=checkpoints.folder if checkpoints else None) as scratch:
        arguments = SFTConfig(
            output_dir=scratch,
            save_strategy="no",  # but when `kept` asks for it
            save_total_limit=1,  # on this machine, which is done with it when it is stored
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.accelerator.is_available(),
            logging_steps=1,
            logging_nan_inf_filter=False,  # or a loss that is no number would be logged as one
            learning_rate=lr,
            lr_scheduler_type="linear",
            warmup_steps=0.1,  # below 1: a share of all steps
            num_train_epochs=epochs,
            max_steps=-1 if steps is None else steps,
            per_device_train_batch_size=batch,
            max_length=max_length,
            completion_only_loss=True,
            gradient_checkpointing=False,  # trades time for memory that these batches do not need
            seed=seed,
        )
        trainer = SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=_as_table(examples, chat=bool(tokenizer.chat_template)),
            processing_class=tokenizer,
            peft_config=None if method == "full" else lora,
            callbacks=callbacks,
        )
        _learn_in_full_precision(trainer.model)
        trainer.remove_callback(PrinterCallback)  # `on_log` says the same
        resume_from = kept.resume_from(trainer.model) if kept else None
        loss = trainer.train(resume_from_checkpoint=resume_from).training_loss
    if not math.isfinite(loss):
        raise InvalidInput(f"Training diverged: its loss is {loss}.", remedy=f"Use a lower lr than {lr:g}.")
    trained: Any = trainer.model
    if method != "full":
        return _save_adapter(trained, Path(output), base)
    return _save_model(trained.to(base_dtype), tokenizer, Path(output))


def _load(base: Model | str | os.PathLike[str], dtype: Any, *, in_4_bits: bool) -> PreTrainedModel:
    """The base to train; its linear layers as QLoRA has them, where it is wanted ``in_4_bits``."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if not in_4_bits:
        return AutoModelForCausalLM.from_pretrained(str(base), dtype=dtype)
    if find_spec("bitsandbytes") is None:
        raise InvalidInput(
            "The method 'qlora' needs bitsandbytes, which is not installed here.",
            remedy="Install it (pip install bitsandbytes), or use lora.",
        )
    nf4 = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return AutoModelForCausalLM.from_pretrained(str(base), dtype=dtype, quantization_config=nf4)


def _learn_in_full_precision(model: Any) -> None:
    """Over a base in 4 bits TRL would have the adapter learn in half precision."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def _as_table(examples: list[Example], *, chat: bool) -> TrainingTable:
    """The examples as TRL takes them: chats, or plain text for a base that has no chat template."""
    import datasets

    if chat:
        return datasets.Dataset.from_list(
            [{"prompt": list(each.prompt), "completion": list(each.completion)} for each in examples]
        )
    return datasets.Dataset.from_list(
        [{"prompt": each.plain_prompt, "completion": each.expected} for each in examples]
    )


def _keep_in(
    checkpoints: Checkpoints | None, every: int, callbacks: list[Any]
) -> HFCheckpointCallback | None:
    """What keeps the training's state, added to the callbacks; None where it is not to be kept."""
    if checkpoints is None or every == 0:
        return None
    from trainers.checkpoints.huggingface import HFCheckpointCallback

    keeping = HFCheckpointCallback(checkpoints, every=every)
    callbacks.append(keeping)
    return keeping


def _log_to(on_log: OnLog) -> TrainerCallback:
    """A Trainer callback that hands each log line on, in place of printing it, and how much is left to do."""
    from transformers import TrainerCallback

    class LogTo(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            self._before = state.global_step
            self._pace = Pace("steps", state.max_steps)
            say(f"training {state.max_steps - self._before} steps; {_learning(model)}")

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" not in logs:  # the last line sums up, without a loss
                return
            left = self._pace.seconds_left(state.global_step, before=self._before)
            on_log(state.global_step, {**logs, "steps": state.max_steps, "seconds_left": left})

    return LogTo()


def _learning(model: Any) -> str:
    """As in ``4,884,480 of 139,400,064 weights learn``."""
    weights = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    learning = sum(count for count, learns in weights if learns)
    return f"{learning:,} of {sum(count for count, _ in weights):,} weights learn"


def _save_adapter(model: PeftModel, output: Path, base: Model | str | os.PathLike[str]) -> Adapter:
    # PEFT would write the path that the base had on this machine, which means nothing on another.
    reference = base.ref if isinstance(base, Artifact) else None
    model.peft_config["default"].base_model_name_or_path = reference or Path(base).name
    model.save_pretrained(str(output), save_embedding_layers=False)  # the vocabulary is the base's
    (output / "README.md").unlink(missing_ok=True)  # a template in which everything is left to fill in
    return Adapter(output)


def _save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: Path) -> Model:
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    return Model(output)
