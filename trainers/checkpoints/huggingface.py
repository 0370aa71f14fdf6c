"""Checkpoints of a Hugging Face Trainer, and of those made from it, such as TRL's.

    callback = HFCheckpointCallback(checkpoints, every=50)
    trainer = Trainer(model=model, ..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from(trainer.model))

What a LoRA training changes is copied in memory at the end of a step; writing and storing that goes on beside
the next steps, in the Trainer's own layout. A training of many bytes, over several processes or in shards is
saved by the Trainer itself to this machine, and stored beside the next steps. When a run goes on the Trainer
loads its states weights-only and skips the batches that were seen, so the weights become what they would have
become without the break.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from registry.errors import InvalidInput
from trainers.checkpoints.identity import Identity, identify
from trainers.checkpoints.preemption import Preemption
from trainers.checkpoints.series import Checkpoints, Restored
from trainers.checkpoints.trainer_state import can_snapshot, snapshot


class HFCheckpointCallback(TrainerCallback):
    """Stores what the Trainer saves, and has it save when the process is asked to stop.

    ``every`` is in steps; without it the Trainer saves when its own arguments say so. The last step is not
    stored: what it learned becomes the result. Only the first process of several saves, so a sharded training
    needs a checkpoint of its own making.
    """

    def __init__(self, checkpoints: Checkpoints, *, every: int | None = None) -> None:
        if every is not None and every < 1:
            raise InvalidInput(
                f"A checkpoint cannot be saved every {every} steps.", remedy="Save every 1 or more."
            )
        self._checkpoints = checkpoints
        self._every = every
        self._preemption = Preemption()
        self._identity: Identity | None = None
        self._restored: Restored | None = None

    def resume_from(self, model: Any) -> str | None:
        """The folder for ``train(resume_from_checkpoint=...)``; None where the run has no checkpoint.

        ``model`` is the Trainer's, before it is trained. The folder is removed after the first step.

        Raises:
            InvalidInput: the checkpoint is of another model.
        """
        self._identity = _identity(model)
        self._restored = self._checkpoints.load(model=self._identity)
        return None if self._restored is None else str(self._restored.folder)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        **_: Any,
    ) -> None:
        if self._identity is None:
            self._identity = _identity(model)
        self._preemption.hold()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        self._checkpoints.check()
        self._remove_restored()
        if _is_last(state):
            return
        if not self._preemption.asked and not (self._every and state.global_step % self._every == 0):
            return
        # What the Trainer does after this step anyway, it does first, and then it saves.
        if control.should_save or control.should_evaluate or not can_snapshot(args, state, parts):
            control.should_save = True
            return
        self._checkpoints.save_soon(state.global_step, snapshot(state, control, parts), model=self._identity)
        self._give_way_if_asked()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if _is_last(state):
            return
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            self._checkpoints.save(state.global_step, folder, model=self._identity, settled=True)
        self._give_way_if_asked()

    def _give_way_if_asked(self) -> None:
        if self._preemption.asked:
            self._preemption.let_go()
            self._checkpoints.hand_back()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._remove_restored()
        self._preemption.let_go()

    def _remove_restored(self) -> None:
        """Not before the first step has ended: random states are read late."""
        if self._restored is not None:
            self._restored.discard()
            self._restored = None


def _is_last(state: TrainerState) -> bool:
    return state.global_step >= state.max_steps


def _identity(model: Any) -> Identity:
    return identify(model.named_parameters(), type(model).__name__)
