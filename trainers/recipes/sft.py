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
    rank: int = 16,
    alpha: int = 32,
    lr: float = 2e-4,
    epochs: float = 1.0,
    steps: int | None = None,
    batch: int = 8,
    max_length: int = 512,
    seed: int = 0,
    save_every: int = 20,
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
    steps: batches that are taken
    batch: examples in a batch
    max_length: tokens; what is longer is cut at the end
    seed: of the order of the examples and the adapter's first weights
    save_every: steps after which the state is kept for another attempt; 0 for never

    Inside a run the state is kept after each ``save_every`` steps (0 for never) and when the worker is asked
    to stop; the run's next attempt goes on there and ends with the weights that it would have had.

    Raises ``InvalidContent`` when ``data`` has no usable ``train.jsonl``, ``InvalidInput`` for another
    ``method``, one whose library is not here, or when training diverges.
    """
    if method not in METHODS:
        raise InvalidInput(f"There is no method {method!r}.", remedy=f"Use {', '.join(METHODS)}.")
    examples = read_examples(data, "train")

    import torch
    from peft import LoraConfig
    from transformers import AutoConfig, AutoTokenizer, PrinterCallback, set_seed
    from trl import SFTConfig, SFTTrainer

    quiet_progress()
    set_seed(seed)
    base_dtype = AutoConfig.from_pretrained(str(base)).dtype or torch.float32
    # A frozen base may stay in half precision. Weights that learn may not: small updates would be lost.
    dtype = torch.float32 if method == "full" else base_dtype
    model = _load(base, dtype, in_4_bits=method == "qlora")
    tokenizer = AutoTokenizer.from_pretrained(str(base))
    lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    callbacks: list[Any] = [_log_to(on_log)]
    kept = _keep_in(checkpoints, save_every, callbacks)
    with tempfile.TemporaryDirectory(dir=checkpoints and checkpoints.folder) as scratch:
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
            max_steps=steps or -1,
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
        resume_from = kept and kept.resume_from(trainer.model)
        loss = trainer.train(resume_from_checkpoint=resume_from).training_loss
    if not math.isfinite(loss):
        raise InvalidInput(f"Training diverged: its loss is {loss}.", remedy=f"Use a lower lr than {lr:g}.")
    if method != "full":
        return _save_adapter(trainer.model, Path(output), base)
    return _save_model(trainer.model.to(base_dtype), tokenizer, Path(output))


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
    nf4 = BitsAndBytesConfig(
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

    callbacks.append(HFCheckpointCallback(checkpoints, every=every))
    return callbacks[-1]


def _log_to(on_log: OnLog | None) -> TrainerCallback:
    """A Trainer callback that hands each log line on, in place of printing it."""
    from transformers import TrainerCallback

    class LogTo(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if on_log is not None and "loss" in logs:  # the last line sums up, without a loss
                on_log(state.global_step, dict(logs))

    return LogTo()


def _save_adapter(model: PeftModel, output: Path, base: Model | str | os.PathLike[str]) -> Adapter:
    # PEFT would write the path that the base had on this machine, which means nothing on another.
    reference = base.ref if isinstance(base, Artifact) else None
    model.peft_config["default"].base_model_name_or_path = reference or Path(base).name
    model.save_pretrained(output, save_embedding_layers=False)  # the vocabulary is the base's
    (output / "README.md").unlink(missing_ok=True)  # a template in which everything is left to fill in
    return Adapter(output)


def _save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: Path) -> Model:
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    return Model(output)
