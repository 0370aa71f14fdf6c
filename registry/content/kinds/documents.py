"""JSON files that a kind requires."""

from __future__ import annotations

import json
from typing import Any

from registry.content.scan import Scan
from registry.errors import InvalidContent


def require_object(scan: Scan, path: str, kind: str) -> dict[str, Any]:
    """The JSON object in a file at ``path``; raises `InvalidContent` that names the file."""
    file = scan.get(path)
    if file is None:
        raise InvalidContent(
            f"{scan.root} has no {path}, and {kind} needs one.",
            remedy=f"Push the folder that holds {path}.",
            path=path,
        )
    try:
        document = json.loads(file.source.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidContent(
            f"{path} is not valid JSON: {error}", remedy="Save it again.", path=path
        ) from None
    if not isinstance(document, dict):
        raise InvalidContent(f"{path} is not a JSON object.", remedy="Save it again.", path=path)
    return document
