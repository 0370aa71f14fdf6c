"""Which process is meant: a number is given away again, a number with its start time and boot is not."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil

_CLOCK_GRAIN = 0.02  # seconds; the kernel counts a start in ticks of 10 ms


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one boot of one machine."""

    host: str
    boot: str
    pid: int
    started: float  # seconds since the epoch

    @classmethod
    def current(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now."""
        return cls(socket.gethostname(), boot_id(), pid, round(psutil.Process(pid).create_time(), 2))

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        return cls(
            str(stated.get("host", "")),
            str(stated.get("boot", "")),
            int(stated.get("pid", 0)),
            float(stated.get("started", 0)),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_local(self) -> bool:
        """Whether this machine can tell if it lives."""
        return self.host == socket.gethostname() and self.boot == boot_id()

    @property
    def is_alive(self) -> bool:
        """Whether it runs, on this machine since its last boot."""
        if not self.is_local or self.pid <= 0:
            return False
        try:
            found = psutil.Process(self.pid)
            same = abs(float(found.create_time()) - self.started) <= _CLOCK_GRAIN
            return same and bool(found.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False


@cache
def boot_id() -> str:
    """Names this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))
