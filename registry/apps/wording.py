"""Declared objects in words: what one is, and what a change of it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from registry.gates.rules import Gate
from registry.values import AppChange, ChangeKind

_DIGEST = re.compile(r"sha256:([0-9a-f]{12})[0-9a-f]{52}")


def change_in_words(change: AppChange) -> str:
    """The fields that change; where all of it is new, goes or stays, what it is."""
    if change.change is ChangeKind.CHANGE:
        return ", ".join(_differences("", change.before or {}, change.after or {}))
    return object_in_words(change.kind, change.name, change.after or change.before or {})


def object_in_words(kind: str, name: str, body: Mapping[str, Any]) -> str:
    """What a declared object is, in half a line; nothing for a kind that is not known here."""
    try:
        match kind:
            case "gate":
                return (
                    f"{body['artifact']}:{body['alias']} needs {Gate.from_json(name, body).rule.describe()}"
                )
            case "deployment":
                served = [f"{each} from {ref}" for each, ref in sorted(body["serves"].items())]
                return ", ".join([f"base {body['base']}", *served])
            case "trigger":
                return f"on {_filter(body['on'])}: {_action(body['action'])}"
            case "subscription":
                return f"on {_filter(body['on'])}"
            case "code":
                return f"{body['file']} ({_value(body['bundle'])})"
    except (KeyError, TypeError, AttributeError):  # of another podium, which wrote it otherwise
        return ""
    return ""


def _filter(on: Mapping[str, Any]) -> str:
    """``rollout ticket-router live`` of the filter's fields that select something."""
    said = [value for key, value in on.items() if key != "on" and isinstance(value, str) and value != "*"]
    return " ".join([str(on["on"]), *said])


def _action(action: Mapping[str, Any]) -> str:
    target = action.get("task") or action.get("alias") or ""
    return f"{action['do']} {target}".strip()


def _differences(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Each field that differs, by its path, as ``rule.at_least: 0.5 -> 0.6``."""
    for key in sorted(before.keys() | after.keys()):
        old, new, where = before.get(key), after.get(key), f"{path}{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(f"{where}.", old, new)
        elif old != new:
            yield f"{where}: {_value(old)} -> {_value(new)}"


def _value(value: Any) -> str:
    """A field as a person reads it: yes, no and none; of a digest what tells it from others."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(each)}" for key, each in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(_value(each) for each in value) or "none"
    return _DIGEST.sub(r"\1", str(value))
