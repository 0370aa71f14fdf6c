"""What no content, or only a checkpoint, may hold."""

from __future__ import annotations

import re

from registry.content.pickles import is_pickle
from registry.content.scan import Scan
from registry.errors import InvalidContent

_TRAINING_ARGUMENTS = "training_args.bin"
_CHECKPOINT_FOLDER = re.compile(r"(checkpoint-[0-9]+)/")


def drop_trainer_leftovers(scan: Scan, *, with_checkpoints: bool) -> Scan:
    """Leave out what a Hugging Face Trainer puts beside what it saves.

    Its arguments are a pickle and can hold a token in clear, so not even a checkpoint keeps them.
    ``with_checkpoints`` also leaves out its ``checkpoint-500`` folders: they are content of another kind.
    """
    if scan.get(_TRAINING_ARGUMENTS) is not None:
        scan = scan.without(
            {_TRAINING_ARGUMENTS},
            f"left out {_TRAINING_ARGUMENTS}: it is a pickle of the Trainer's settings and can hold a token",
        )
    if not with_checkpoints:
        return scan
    for folder in sorted({found[1] for file in scan.files if (found := _CHECKPOINT_FOLDER.match(file.path))}):
        inside = {file.path for file in scan.files if file.path.startswith(folder + "/")}
        scan = scan.without(inside, f"left out {folder}/: push it as a checkpoint if you want to keep it")
    return scan


def refuse_pickles(scan: Scan) -> None:
    """Raise `InvalidContent` naming the first file that is a pickle, under whatever name."""
    for file in scan.files:
        if is_pickle(file.source):
            raise InvalidContent(
                f"{file.path} is a Python pickle, which can run any program when it is loaded.",
                remedy="Save weights as safetensors, data as JSON or Parquet; or remove the file.",
                path=file.path,
            )
