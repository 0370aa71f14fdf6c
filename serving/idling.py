"""A vLLM plugin: on a CPU, a process that waits for another's message leaves the core to others.

vLLM's processes spin on ``sched_yield`` for a second after each message. A GPU has cores to spare for that.
On a CPU they are the cores that compute: measured on Linux 6.18, what shares a core with such a spinner gets
0.2 to 4 % of it, so a second engine beside a busy one does not come up in ten minutes. Here they look, and
sleep for a moment. (vLLM's own way to sleep is a socket that tells of writes. It loses some; those wait for
five seconds.)

vLLM loads it into each of its processes (``vllm.general_plugins``), so it uses the standard library alone and
imports nothing of podium. Where vLLM looks different from what is expected here, it changes nothing.
"""

from __future__ import annotations

import time
from types import ModuleType

PAUSE_SECONDS = 0.0001  # about 0.16 ms with the kernel's timer slack; a step of the smallest model takes 5 ms


def sleep_between_looks() -> None:
    """The plugin's entry point."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.distributed.device_communicators import shm_broadcast

        replace_yield(shm_broadcast)


def replace_yield(shm_broadcast: ModuleType) -> None:
    """What waits in vLLM's shared-memory queue calls this name between two looks, as reader and as writer."""
    if hasattr(shm_broadcast, "sched_yield"):
        shm_broadcast.sched_yield = _pause


def _pause() -> None:
    time.sleep(PAUSE_SECONDS)
