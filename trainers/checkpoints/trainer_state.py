"""The state of a Hugging Face Trainer, copied in memory and written in the Trainer's own layout.

The Trainer's own save writes while training waits. Here training waits for the copies alone; files are
written on another thread. What `Trainer.train(resume_from_checkpoint=...)` reads is there, no more: weights,
optimizer, scheduler, random states and `trainer_state.json`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from peft import PeftModel
from transformers import PreTrainedModel, TrainerControl, TrainerState, TrainingArguments

from trainers.checkpoints.states import copied

#: Most bytes that are copied: two copies may be held at once, and nobody has reckoned with the memory for
#: them. What a LoRA training changes is far below; that of a large model whose weights all learn is not.
_MOST_BYTES = 2**30
#: What of the loop itself keeps a state. Other callbacks' states can only be had by the Trainer.
_KNOWN = {"TrainerControl"}


def can_snapshot(args: TrainingArguments, state: TrainerState, parts: Mapping[str, Any]) -> bool:
    """Whether all of the state is in this process, known and not too large; else the Trainer has to save."""
    model = parts.get("model")
    return (
        args.world_size == 1
        and not (args.fp16 or args.fsdp or args.deepspeed or args.push_to_hub)
        and isinstance(model, PreTrainedModel | PeftModel)
        and all(hasattr(parts.get(name), "state_dict") for name in ("optimizer", "lr_scheduler"))
        and set(state.stateful_callbacks or ()) <= _KNOWN
        and _size(model, parts["optimizer"]) <= _MOST_BYTES
    )


def _size(model: Any, optimizer: Any) -> int:
    """Bytes that change in each step."""
    tensors = [each for each in model.parameters() if each.requires_grad]
    for kept in optimizer.state.values():
        tensors += [each for each in kept.values() if isinstance(each, torch.Tensor)]
    return sum(each.numel() * each.element_size() for each in tensors)


def snapshot(
    state: TrainerState, control: TrainerControl, parts: Mapping[str, Any]
) -> Callable[[Path], None]:
    """What the parts of a Trainer are now; the function writes that into a folder, on any thread."""
    model = parts["model"]
    weights = _weights(model)
    optimizer = copied(parts["optimizer"].state_dict())
    scheduler = copied(parts["lr_scheduler"].state_dict())
    chances = _random_states()
    progress = copy.copy(state)
    progress.log_history = list(state.log_history)
    progress.stateful_callbacks = {type(control).__name__: control.state()}  # type: ignore[assignment]

    def write(folder: Path) -> None:
        model.save_pretrained(folder, state_dict=weights)
        torch.save(optimizer, folder / "optimizer.pt")
        torch.save(scheduler, folder / "scheduler.pt")
        torch.save(chances, folder / "rng_state.pth")
        progress.save_to_json(str(folder / "trainer_state.json"))

    return write


def _weights(model: Any) -> dict[str, torch.Tensor]:
    """The tensors of a model. Those that do not learn are not copied: they stay as they are."""
    named = model.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in named if not parameter.requires_grad}
    copies: dict[int, torch.Tensor] = {}  # tied weights stay tied
    found = {}
    for name, tensor in model.state_dict().items():
        place = tensor.data_ptr()
        if name not in frozen and place not in copies:
            copies[place] = copied(tensor)
        found[name] = tensor if name in frozen else copies[place]
    return found


def _random_states() -> dict[str, Any]:
    """As the Trainer keeps them."""
    states = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.random.get_rng_state()
    return states
