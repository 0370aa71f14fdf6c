"""States of PyTorch objects as files, and back.

A module becomes ``<name>.safetensors``, so that the store keeps a tensor that does not change once. Anything
else with a ``state_dict`` becomes ``<name>.pt``, which is loaded weights-only: it may hold tensors and plain
values.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from registry.errors import InvalidInput

if TYPE_CHECKING:
    import torch

_RANDOM = "random.pt"


class Stateful(Protocol):
    """A model, an optimizer, a scheduler, a sampler ..."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


def snapshot(states: Mapping[str, Stateful]) -> Callable[[Path], None]:
    """What the objects and the random number generators are now; the function writes that into a folder.

    It may be called later and on another thread: what can change until then has been copied.
    """
    import torch

    modules, others = {}, {}
    for name, each in states.items():
        if isinstance(each, torch.nn.Module):
            modules[name] = _tensors_of(each)
        else:
            others[name] = copied(each.state_dict())
    random_states = _random_states()

    def write(folder: Path) -> None:
        from safetensors.torch import save_file

        for name, tensors in modules.items():
            save_file(tensors, folder / f"{name}.safetensors")
        for name, state in others.items():
            torch.save(state, folder / f"{name}.pt")
        torch.save(random_states, folder / _RANDOM)

    return write


def restore(states: Mapping[str, Stateful], folder: Path) -> None:
    """Give the objects and the random number generators the states that `snapshot` wrote into ``folder``.

    Raises:
        InvalidInput: the folder lacks one of the objects, or holds something that must not be loaded.
    """
    import torch
    from safetensors.torch import load_file

    for name, each in states.items():
        if isinstance(each, torch.nn.Module):
            each.load_state_dict(load_file(_require(folder / f"{name}.safetensors")))
        else:
            each.load_state_dict(_load(_require(folder / f"{name}.pt")))
    _set_random_states(_load(folder / _RANDOM))


def _require(path: Path) -> Path:
    if not path.is_file():
        there = ", ".join(sorted(each.stem for each in path.parent.iterdir())) or "nothing"
        raise InvalidInput(
            f"The checkpoint has no state of '{path.stem}'; it has {there}.",
            remedy="Go on with the code that saved it, or start a new run.",
        )
    return path


def _load(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidInput(
            f"The state of '{path.stem}' holds more than tensors and plain values, and is not loaded.",
            remedy="Let its state_dict() return tensors, numbers, text, lists and dicts.",
        ) from error


def _tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module. Those that do not learn are not copied: they stay as they are."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    found: dict[str, torch.Tensor] = {}
    shared: set[int] = set()  # tensors that are the same memory cannot be written into one file
    for name, tensor in module.state_dict().items():
        if not hasattr(tensor, "detach"):
            raise InvalidInput(
                f"'{name}' of the model is no tensor, so it cannot be kept in a checkpoint.",
                remedy="Give it to the checkpoint as an object of its own, with state_dict().",
            )
        memory = tensor.untyped_storage().data_ptr()
        kept = name in frozen and tensor.is_contiguous() and memory not in shared
        shared.add(memory)
        found[name] = tensor.detach().cpu() if kept else copied(tensor)
    return found


def copied(state: Any) -> Any:
    """A deep copy on the CPU that shares no memory with the original."""
    import torch

    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)([copied(value) for value in state])
    return copy.deepcopy(state)


def _random_states() -> dict[str, Any]:
    import numpy
    import torch

    name, keys, *rest = numpy.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        # As a list: an array would need more than weights-only loading allows.
        "numpy": [name, [int(key) for key in keys], *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _set_random_states(states: dict[str, Any]) -> None:
    import numpy
    import torch

    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
