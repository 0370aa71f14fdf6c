"""Which model a checkpoint is a state of, so that it is never loaded into another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from registry.checkpoints import SavedCheckpoint
from registry.errors import InvalidInput

if TYPE_CHECKING:
    import torch

_SAMPLED = 64  # numbers of a frozen tensor that are looked at; another base differs in nearly all of them


@dataclass(frozen=True, slots=True)
class Identity:
    """What a training changes, and what it stands on.

    Two models with one identity have tensors of the same names, shapes and types; the same ones learn; and
    those that do not learn hold the same numbers, as far as a sample tells.
    """

    digest: str
    what: str  # in words

    def to_metadata(self) -> dict[str, Any]:
        return {"model": self.digest, "what": self.what}


def identify(parameters: Iterable[tuple[str, torch.nn.Parameter]], name: str) -> Identity:
    """The identity of a model by its named parameters; ``name`` is what it is called in messages."""
    digest = hashlib.sha256()
    counts = {True: 0, False: 0}
    for path, parameter in sorted(parameters, key=lambda each: each[0]):
        learns = bool(parameter.requires_grad)
        counts[learns] += parameter.numel()
        digest.update(f"{path} {tuple(parameter.shape)} {parameter.dtype} {learns}\n".encode())
        if not learns:
            digest.update(_sample(parameter))
    what = f"{name}, of which {counts[True]:,} numbers learn and {counts[False]:,} do not"
    return Identity(digest.hexdigest(), what)


def _sample(frozen: torch.Tensor) -> bytes:
    """Some numbers of a tensor, spread over all of it, as bytes."""
    flat = frozen.detach().reshape(-1)
    if flat.is_meta or not flat.numel():
        return b""
    sampled = flat[:: max(1, flat.numel() // _SAMPLED)][:_SAMPLED]
    return bytes(sampled.cpu().double().numpy().tobytes())


def refuse_another(saved: SavedCheckpoint, model: Identity) -> None:
    """Raise `InvalidInput` if a checkpoint is known to be the state of another model."""
    found = saved.metadata.get("model")
    if found is None or found == model.digest:
        return
    raise InvalidInput(
        f"The checkpoint at step {saved.step} of run {saved.run} is of another model: "
        f"{saved.metadata.get('what')}. This one is {model.what}.",
        remedy="Go on with the code and the base that saved it, or start a new run.",
        run=saved.run,
        step=saved.step,
    )
