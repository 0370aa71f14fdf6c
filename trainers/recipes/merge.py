"""Fold an adapter into its base: a whole model that needs no adapter to be served.

The base's files are copied and only the bytes of tensors that the adapter changes are written over. So file
names, headers and the order of tensors stay the base's, and a store keeps what did not change once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from registry.artifacts import Adapter, Model
from registry.content.safetensors import Header, read_header
from registry.errors import InvalidContent
from trainers.recipes.quiet import quiet_progress

if TYPE_CHECKING:
    from torch import Tensor

#: Names of dtypes in a safetensors header, and in torch.
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# transformers reads and writes other names in memory than on disk for a few architectures; merging is refused
# there.
_OTHER_NAMES = "This architecture cannot be merged here. Serve the adapter as it is."


def merge(
    base: Model | str | os.PathLike[str],
    adapter: Adapter | str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] = "merged",
) -> Model:
    """Write ``base`` with ``adapter`` folded in to the folder ``output``, in the base's dtype.

    Raises ``InvalidContent`` when the adapter does not fit the base, or changes something that the base's
    files do not hold, such as an output layer that is tied to the embedding.
    """
    before, after = _weights(base, adapter)
    headers = {file: read_header(file) for file in sorted(Path(base).glob("*.safetensors"))}
    _require_all_on_disk(headers, before, after)
    shutil.copytree(base, output, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for file, header in headers.items():
        _write_changed(Path(output) / file.name, header, before, after)
    return Model(output)


def _weights(
    base: Model | str | os.PathLike[str], adapter: Adapter | str | os.PathLike[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """All tensors of the base by name, and the same after the merge."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    quiet_progress()
    model = AutoModelForCausalLM.from_pretrained(str(base), dtype="auto")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    except (RuntimeError, ValueError, KeyError) as error:
        raise InvalidContent(
            f"The adapter {adapter} does not fit the base {base}: {str(error).splitlines()[0]}",
            remedy="Merge it into the base that it was trained on.",
        ) from error
    return before, merged.state_dict()


def _require_all_on_disk(
    headers: Mapping[Path, Header], before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> None:
    """Refuse a merge whose result could not be written tensor by tensor into the base's files."""
    on_disk = {name for header in headers.values() for name in header}
    unknown = sorted(on_disk - before.keys())
    if unknown:
        raise InvalidContent(f"The model has no tensor {unknown[0]} in memory.", remedy=_OTHER_NAMES)
    lost = sorted(
        name for name in after.keys() - on_disk if name not in before or _differs(name, before, after)
    )
    if lost:
        raise InvalidContent(
            f"The adapter changes {lost[0]}, which the base's files do not hold.",
            remedy="Serve the adapter as it is, or train one that leaves tied and added weights alone.",
        )


def _differs(name: str, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> bool:
    import torch

    return not torch.equal(before[name], after[name])


def _write_changed(
    file: Path, header: Header, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> None:
    with file.open("r+b") as stream:
        for name, place in header.tensors.items():
            if not _differs(name, before, after):
                continue
            if place.dtype not in _DTYPES:
                raise InvalidContent(f"{name} is {place.dtype}; an adapter cannot be merged into that.")
            stream.seek(place.begin)
            stream.write(_bytes(after[name], place.dtype))


def _bytes(tensor: Tensor, dtype: str) -> memoryview:
    """A tensor's elements in their order, little-endian as safetensors keeps them."""
    import torch

    # The file's dtype, and not the one in memory: a configuration may ask for another when the model is
    # loaded.
    written = tensor.to("cpu", getattr(torch, _DTYPES[dtype])).contiguous()
    # In the annotations of Python 3.11 an array is not yet a buffer.
    return memoryview(cast("bytes", written.view(torch.uint8).numpy())).cast("B")
