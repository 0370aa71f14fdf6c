"""A plain training loop that survives the node.

for step in resumable(checkpoints, 1000, every=50, model=model, optimizer=optimizer):
    loss = model(batches[step]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from registry.errors import InvalidInput
from trainers.checkpoints.identity import Identity, identify
from trainers.checkpoints.preemption import Preemption
from trainers.checkpoints.series import Checkpoints
from trainers.checkpoints.states import Stateful, restore, snapshot

if TYPE_CHECKING:
    import torch


def resumable(
    checkpoints: Checkpoints | None, steps: int, *, every: int, **states: Stateful
) -> Iterator[int]:
    """The numbers of the steps that are still to be done, from 0 in a run's first attempt.

    ``states`` are the objects that training changes: model, optimizer, scheduler, sampler. They get the
    state in which the last checkpoint left them, and so do Python's, numpy's and torch's random number
    generators; then all are saved after each ``every`` steps, and when the process is asked to stop. Take
    batches by the step's number, or from a sampler whose state is among ``states``, and the data goes on
    where it was.

    Between two steps the state is whole; gradients are not part of it, so a step includes ``zero_grad``.
    ``checkpoints`` may be None outside a run: nothing is saved then.

    Raises:
        InvalidInput: the checkpoint is of another model, or lacks one of ``states``.
        Interrupted: the process was asked to stop, and its state is saved.
    """
    if every < 1:
        raise InvalidInput(
            f"A checkpoint cannot be saved every {every} steps.", remedy="Save every 1 or more."
        )
    if checkpoints is None:
        yield from range(steps)
        return
    model = _identity(states)
    begin = _restore(checkpoints, states, model)
    with Preemption() as preemption:
        for step in range(begin, steps):
            yield step
            done = step + 1
            checkpoints.check()
            if done == steps:
                return  # what was learned is about to become the result, which is all that is needed
            if preemption.asked or done % every == 0:
                checkpoints.save_soon(done, snapshot(states), model=model)
            if preemption.asked:
                checkpoints.hand_back()


def _restore(checkpoints: Checkpoints, states: Mapping[str, Stateful], model: Identity | None) -> int:
    restored = checkpoints.load(model=model)
    if restored is None:
        return 0
    restore(states, restored.folder)
    restored.discard()
    return restored.step


def _identity(states: Mapping[str, Stateful]) -> Identity | None:
    """What the modules among ``states`` are together; None where there are none."""
    import torch

    modules = {name: each for name, each in states.items() if isinstance(each, torch.nn.Module)}
    if not modules:
        return None
    name = " and ".join(sorted({type(module).__name__ for module in modules.values()}))
    return identify(_parameters(modules), name)


def _parameters(modules: Mapping[str, torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for name, module in modules.items():
        yield from module.named_parameters(prefix=name)
