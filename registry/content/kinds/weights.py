"""What every kind with weights requires of them."""

from __future__ import annotations

from registry.content.safetensors import Header, read_header
from registry.content.scan import Scan, ScannedFile
from registry.errors import InvalidContent

SUFFIX = ".safetensors"


def check_weights(scan: Scan) -> None:
    """Check the header of each safetensors file."""
    for file in scan.files:
        if file.path.endswith(SUFFIX):
            _header(file)


def require_weights(scan: Scan, kind: str) -> None:
    """Check each safetensors file, that there is one at the top of the folder, and that they hold tensors."""
    if not any(file.path.endswith(SUFFIX) and "/" not in file.path for file in scan.files):
        raise InvalidContent(
            f"{scan.root} has no {SUFFIX} file at its top, and {kind} needs one.",
            remedy="Save with safetensors (save_pretrained does), and push the folder that holds the file.",
        )
    headers = [_header(file) for file in scan.files if file.path.endswith(SUFFIX)]
    if not any(header.tensors for header in headers):
        # What a sharded training saves that did not gather its weights first.
        raise InvalidContent(
            f"The {SUFFIX} files of {scan.root} hold no tensor.",
            remedy="Save it again; a training over several processes gathers its weights before that.",
        )


def _header(file: ScannedFile) -> Header:
    try:
        return read_header(file.source)
    except InvalidContent as error:
        if file.source.name == file.path:
            raise
        raise InvalidContent(
            error.message.replace(file.source.name, file.path, 1), remedy=error.remedy, path=file.path
        ) from None
