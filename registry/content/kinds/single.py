"""One file."""

from __future__ import annotations

from registry.content.scan import Scan
from registry.errors import InvalidContent


def check_single(scan: Scan) -> None:
    """Raise `InvalidContent` unless there is exactly one file."""
    if len(scan.files) != 1:
        raise InvalidContent(
            f"{scan.root} has {len(scan.files)} files, and a 'file' is one.",
            remedy="Give the path of the file, or use the kind 'dir'.",
        )
