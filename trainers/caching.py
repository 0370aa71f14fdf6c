"""``cache="auto"``: by what a step is known to make the same as another."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from registry.capture.environment import locked_packages
from registry.capture.reachable import reached
from registry.protocol import Registry
from registry.runs import Run


@dataclass(frozen=True, slots=True)
class Basis:
    """All that decides what a cached step makes. Kept with it, so that it can be explained."""

    task: str
    arguments: Mapping[str, Any]
    inputs: Mapping[str, str]  # parameter -> digest of its content
    code: Mapping[str, str]  # definition -> digest: the task's function and what it reaches
    lock: str  # digest of the environment's packages

    @property
    def key(self) -> str:
        parts = [self.task, dict(self.arguments), dict(self.inputs), dict(self.code), self.lock]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "arguments": dict(self.arguments),
            "inputs": dict(self.inputs),
            "code": dict(self.code),
            "lock": self.lock,
        }


@cache
def lock_digest() -> str:
    """The digest of this environment: its Python, and the packages in it with their versions."""
    packages = locked_packages(importlib.metadata.distributions())
    text = "\n".join([platform.python_version(), *packages])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def code_of(file: Path, function: str, root: Path) -> Mapping[str, str]:
    """The definitions that a function of the code in ``root`` reaches."""
    return reached(file, function, root)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a step was taken from the cache, or was not."""

    run: str
    cached: bool  # whether its task is cached at all
    hit: bool
    source: str | None  # the run that made what was reused
    key: str | None
    basis: Mapping[str, Any] = field(default_factory=dict)
    compared_with: str | None = None  # the newest earlier run of the task whose basis is known
    changed: tuple[str, ...] = ()  # what differs from that one

    @property
    def reason(self) -> str:
        if not self.cached:
            return 'Its task is not cached; declare it with cache="auto".'
        if self.hit:
            return f"Reused from run {self.source}: inputs, arguments, code and lock are the same."
        if self.compared_with is None:
            return "No earlier run of this task is known, so it was executed."
        if not self.changed:
            return (
                f"The same as run {self.compared_with}, which had made nothing when this one was asked for."
            )
        return f"Executed, because it differs from run {self.compared_with}: {', '.join(self.changed)}."


#: Earlier runs of a task that are looked at for one to compare with.
_LOOK_BACK = 200


def explain(registry: Registry, step: Run) -> Explanation:
    """Why ``step`` was taken from the cache or executed."""
    basis = step.captured.get("cache")
    if basis is None:
        return Explanation(step.id, False, False, None, None)
    if step.source is not None:
        return Explanation(step.id, True, True, step.source, step.cache_key, basis)
    for other in registry.runs.list(task=step.task, limit=_LOOK_BACK):
        earlier = other.id != step.id and other.source is None and other.asked <= step.asked
        if earlier and (before := other.captured.get("cache")) is not None:
            changed = tuple(_changed(before, basis))
            return Explanation(step.id, True, False, None, step.cache_key, basis, other.id, changed)
    return Explanation(step.id, True, False, None, step.cache_key, basis)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two bases, in words: ``argument lr``, ``code helpers.py:clean``."""
    found = []
    for part, word in (("arguments", "argument"), ("inputs", "input"), ("code", "code")):
        old, new = before[part], now[part]
        found += [
            f"{word} {name}" for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)
        ]
    return found + ["lock"] * (before["lock"] != now["lock"])
