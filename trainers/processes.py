"""Which process is which: so a dead one is known at once, and another with its number is not taken for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil


def _boot() -> str:
    """A boot of a machine; the same in all its containers. Empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    """The space in which process ids count: a container has its own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def identify(pid: int | None = None) -> str:
    """Who a process of this machine is, as text that `is_dead` reads on any machine."""
    process = psutil.Process(pid or os.getpid())
    return json.dumps([_boot(), _namespace(), process.pid, round(process.create_time(), 2)])


def is_dead(identity: str) -> bool:
    """Whether a process is known to be gone. One of another machine, boot or container never is."""
    boot, namespace, pid, started = json.loads(identity)
    if not boot or (boot, namespace) != (_boot(), _namespace()):
        return False
    try:
        process = psutil.Process(pid)
        # Start times are computed from the boot time, which moves by a little when the clock is set.
        return bool(abs(process.create_time() - started) > 2 or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
