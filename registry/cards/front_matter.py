"""The YAML at the head of a card: as much of YAML as that needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Text that YAML reads as itself, and as nothing else: no number, no date, no ``no``.
_PLAIN = re.compile(r"[a-z][a-z0-9._/-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def front_matter(data: Mapping[str, Any]) -> str:
    """``data`` between the lines that mark it; what is None or empty is left out."""
    return "\n".join(["---", *_mapping(data, ""), "---", ""])


def _mapping(data: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in data.items():
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _mapping(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:"
            yield from _list(value, indent)
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _list(values: list[Any], indent: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping):
            first, *rest = _mapping(value, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}- {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Text in double quotes is the same in JSON and in YAML."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
