"""Which process is meant: so a dead one is known at once, and another with its number is not taken for it.

A process id is given away again. An id with its start time, in one boot of one machine and one process
namespace (a container has its own), is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil

_CLOCK_SLACK = 2.0  # seconds: start times are computed from the boot time, which moves when the clock is set


@dataclass(frozen=True, slots=True)
class Process:
    """One process, as any machine can name it."""

    boot: str  # of a machine; the same in all its containers
    namespace: str  # in which the id counts
    pid: int
    started: float  # seconds since the epoch

    @classmethod
    def current(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this id now."""
        return cls(_boot(), _namespace(), pid, round(psutil.Process(pid).create_time(), 2))

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        return cls(
            str(stated.get("boot", "")),
            str(stated.get("namespace", "")),
            int(stated.get("pid", 0)),
            float(stated.get("started", 0)),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        """For `is_known_dead` on any machine."""
        return json.dumps(self.to_json())

    @property
    def is_local(self) -> bool:
        """Whether this process can tell if that one lives."""
        return bool(self.boot) and (self.boot, self.namespace) == (_boot(), _namespace())

    @property
    def is_alive(self) -> bool:
        """Whether it runs here; of another machine, boot or container it is not said."""
        if not self.is_local or self.pid <= 0:
            return False
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) <= _CLOCK_SLACK
            return bool(same and found.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False


def is_known_dead(text: str) -> bool:
    """Whether the process that a `Process.to_text` names has ended. Of what is not local nothing is known."""
    try:
        process = Process.from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        return False
    return process.is_local and not process.is_alive


def is_elsewhere(text: str) -> bool:
    """Whether a `Process.to_text` names a process of another machine, boot or container."""
    try:
        process = Process.from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        return False
    return bool(process.boot) and not process.is_local


@cache
def _boot() -> str:
    """Empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
