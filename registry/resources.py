"""What a run needs and what a worker has: processors, memory, accelerators, disk.

    Resources(cpu=4, memory="24Gi", gpu="L4:1")

All arithmetic is on whole values: quantities are bytes and counts, never shares of a busy machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, Self

from registry.errors import InvalidInput

_MOST_BYTES = 2**60  # an exbibyte: more is a mistake, and would not fit a column for long
_COUNT = re.compile(r"[0-9]{1,4}")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]i?)?B?", re.IGNORECASE)
_UNITS = {unit: 1000 ** (i + 1) for i, unit in enumerate("kmgtp")}
_UNITS |= {f"{unit}i": 1024 ** (i + 1) for i, unit in enumerate("kmgtp")}
_ACCELERATOR = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,62})(?::([1-9][0-9]{0,3}))?")


def parse_bytes(text: str | int) -> int:
    """``"24Gi"``, ``"500M"`` or a number of bytes, as bytes."""
    if isinstance(text, int):
        if not 0 <= text <= _MOST_BYTES:
            raise InvalidInput(f"{text} is not an amount of bytes.", remedy="Give 0 or more.")
        return text
    match = _BYTES.fullmatch(text.strip())
    amount = float(match[1]) * _UNITS.get((match[2] or "").lower(), 1) if match else inf
    if amount > _MOST_BYTES:
        raise InvalidInput(
            f"'{text[:40]}' is not an amount of memory.", remedy="Write it like 512Mi, 24Gi or 2T."
        )
    return int(amount)


def parse_accelerator(text: str | int) -> tuple[str, int]:
    """``"L4:2"``, ``"L4"`` or a number (of any type), as (type, count); the type ``""`` is any."""
    if isinstance(text, int) or _COUNT.fullmatch(text.strip()):
        return "", int(text)
    match = _ACCELERATOR.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"'{text[:40]}' is not an accelerator.", remedy="Write it like L4:1, H200 or 2.")
    return match[1], int(match[2] or 1)


def _accelerator_text(kind: str, count: int) -> str:
    if not count:
        return ""
    return f"{kind}:{count}" if kind else str(count)


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each resource. As a run's demand, 0 is "does not matter"."""

    cpu: float = 1  # processors
    memory: int | str = 0  # bytes; text such as "24Gi" becomes bytes
    gpu: str | int = ""  # "L4:1", "H200", "2" (any type); kept as TYPE:COUNT
    disk: int | str = 0  # bytes
    nodes: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", parse_bytes(self.memory))
        object.__setattr__(self, "disk", parse_bytes(self.disk))
        kind, count = parse_accelerator(self.gpu) if self.gpu != "" else ("", 0)
        object.__setattr__(self, "gpu", _accelerator_text(kind, count))
        if not (0 <= self.cpu < inf) or self.nodes < 1:
            raise InvalidInput(
                f"{self} cannot be had.", remedy="Give a cpu of 0 or more, and nodes of 1 or more."
            )

    @property
    def accelerators(self) -> tuple[str, int]:
        """(type, count); the type ``""`` is any."""
        return parse_accelerator(self.gpu) if self.gpu else ("", 0)

    def lacking(self, demand: Resources) -> list[str]:
        """The names of what ``demand`` needs and this does not have; empty when it fits."""
        kind, count = demand.accelerators
        own_kind, own_count = self.accelerators
        gpu_fits = count == 0 or (count <= own_count and kind.lower() in {"", own_kind.lower()})
        fits = {
            "cpu": demand.cpu <= self.cpu,
            "memory": int(demand.memory) <= int(self.memory),
            "gpu": gpu_fits,
            "disk": int(demand.disk) <= int(self.disk),
            "nodes": demand.nodes <= self.nodes,
        }
        return [name for name, enough in fits.items() if not enough]

    def less(self, taken: Resources) -> Resources:
        """What is left when ``taken`` is in use; nothing goes below zero."""
        kind, count = self.accelerators
        used_kind, used = taken.accelerators
        if used_kind.lower() in {"", kind.lower()}:
            count = max(0, count - used)
        return replace(
            self,
            cpu=max(0.0, self.cpu - taken.cpu),
            memory=max(0, int(self.memory) - int(taken.memory)),
            gpu=_accelerator_text(kind, count),
            disk=max(0, int(self.disk) - int(taken.disk)),
        )

    def within(self, total: Resources) -> Resources:
        """This demand cut down to what ``total`` has at all."""
        return replace(
            self,
            cpu=min(self.cpu, total.cpu),
            memory=min(int(self.memory), int(total.memory)),
            gpu="" if "gpu" in total.lacking(self) else self.gpu,
            disk=min(int(self.disk), int(total.disk)),
            nodes=min(self.nodes, total.nodes),
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Back from `to_json`; a name that is not a resource is an error."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(stored) - known)
        if unknown:
            raise InvalidInput(
                f"'{unknown[0]}' is not a resource.", remedy=f"Resources are {', '.join(sorted(known))}."
            )
        return cls(**stored)


def choose(demands: Sequence[Resources], free: Resources, total: Resources) -> list[int]:
    """Which of the queued ``demands``, oldest first, a worker takes now: their indices.

    Queue order is fair: a run that this worker can do, but not yet, keeps what is free for itself; later ones
    take only what it does not need. What the worker could never do does not hold up anything.
    """
    chosen = []
    for index, demand in enumerate(demands):
        if total.lacking(demand):
            continue
        if not free.lacking(demand):
            chosen.append(index)
        free = free.less(demand)
    return chosen
