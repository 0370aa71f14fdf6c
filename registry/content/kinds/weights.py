"""What every kind with weights requires of them."""

from __future__ import annotations

from registry.content.safetensors import read_header
from registry.content.scan import Scan, ScannedFile
from registry.errors import InvalidContent

SUFFIX = ".safetensors"


def check_weights(scan: Scan) -> None:
    """Check the header of each safetensors file."""
    for file in scan.files:
        if file.path.endswith(SUFFIX):
            _check_header(file)


def require_weights(scan: Scan, kind: str) -> None:
    """Check each safetensors file, and that there is one at the top of the folder."""
    if not any(file.path.endswith(SUFFIX) and "/" not in file.path for file in scan.files):
        raise InvalidContent(
            f"{scan.root} has no {SUFFIX} file at its top, and {kind} needs one.",
            remedy="Save with safetensors (save_pretrained does), and push the folder that holds the file.",
        )
    check_weights(scan)


def _check_header(file: ScannedFile) -> None:
    try:
        read_header(file.source)
    except InvalidContent as error:
        if file.source.name == file.path:
            raise
        raise InvalidContent(
            error.message.replace(file.source.name, file.path, 1), remedy=error.remedy, path=file.path
        ) from None
