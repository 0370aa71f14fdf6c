"""How much memory this machine has left, and how much a process of a setup would take.

What runs of the same deployment is measured; a first process is estimated by the size of its weights. On
GPUs vLLM takes a share of the whole device, so a second process fits only where two shares do.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from serving.child import Child
from serving.deployment import VLLM
from serving.room import Room
from serving.state import Setup

__all__ = ["MachineRoom", "device_room", "estimate"]

_GIB = 2**30
_MIB = 2**20
_RUNTIME_BYTES = int(1.5 * _GIB)  # Python, torch and vLLM in the two processes of a replica
_WEIGHTS_FACTOR = 1.2
_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
_KEPT_SECONDS = 2.0  # for which a measurement is used again: reading it takes some 50 ms a process
_CGROUP = Path("/sys/fs/cgroup")
_DEVICE_SHARE = 0.9  # vLLM's own default
_SHARE_FLAG = "--gpu-memory-utilization"
_QUERY_SECONDS = 10


class MachineRoom:
    """Measures for the deployment whose replicas have their folders in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: tuple[float, str, Room] | None = None

    def measure(self, setup: Setup) -> Room:
        """Room for processes of a setup; unknown until its base's files are here."""
        now = time.monotonic()
        if self._kept is not None and now < self._kept[0] and self._kept[1] == setup.fingerprint:
            return self._kept[2]
        room = self._measure(setup)
        self._kept = (now + _KEPT_SECONDS, setup.fingerprint, room)
        return room

    def _measure(self, setup: Setup) -> Room:
        weights = self._weights(setup.base.digest)
        if weights is None:
            return Room()
        settings = VLLM.from_text(setup.engine)
        host = Room(free_memory(), estimate(weights, settings, list(self._running())))
        device = device_room(settings.args, _nvidia_smi())
        rooms = [room for room in (host, device) if room.fits is not None]
        return min(rooms, key=lambda room: room.fits or 0, default=Room())

    def _weights(self, digest: str) -> int | None:
        folder = self._folder / "files" / digest.removeprefix("sha256:")
        if not folder.is_dir():
            return None
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))

    def _running(self) -> Iterable[tuple[int, int]]:
        """(bytes, of which weights) of each replica that has its memory already."""
        for folder in self._folder.glob("replica-[0-9]*"):
            child = Child(folder)
            if child.record is None or not child.is_alive():
                continue
            weights = self._weights(child.record.fingerprint.partition("/")[0])
            taken = sum(_proportional(process) for process in child.processes())
            if weights is not None and taken > weights:
                yield taken, weights


def estimate(weights: int, settings: VLLM, running: Sequence[tuple[int, int]]) -> int:
    """Bytes that a process with so many bytes of weights will take, beside what is known of others."""
    cache = int(float(settings.env.get(_CACHE_VARIABLE, 1.0)) * _GIB)
    if running:
        taken, theirs = max(running)
        # The cache is reserved at the start and taken as it is used: what was measured may lack it.
        return max(taken - theirs, cache) + weights
    return int(weights * _WEIGHTS_FACTOR) + cache + _RUNTIME_BYTES


def free_memory() -> int:
    """Bytes that can be taken without swapping, on the machine or in this container."""
    available = int(psutil.virtual_memory().available)
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        taken = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return available
    return available if most == "max" else min(available, max(0, int(most) - taken))


def device_room(args: Sequence[str], devices: str | None) -> Room:
    """Room on the first GPU, from what ``nvidia-smi`` says (``free, total`` in MiB); unknown without one."""
    if not devices or not devices.strip():
        return Room()
    free, total = (int(part) * _MIB for part in devices.strip().splitlines()[0].split(","))
    return Room(free, int(total * _device_share(args)))


def _device_share(args: Sequence[str]) -> float:
    for flag, value in zip(args, [*args[1:], ""], strict=False):
        name, equals, given = flag.partition("=")
        if name.replace("_", "-") == _SHARE_FLAG:
            return float(given if equals else value)
    return _DEVICE_SHARE


def _nvidia_smi() -> str | None:
    executable = shutil.which("nvidia-smi")
    if executable is None:
        return None
    query = [executable, "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, check=False, timeout=_QUERY_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout if asked.returncode == 0 else None


def _proportional(process: psutil.Process) -> int:
    """Bytes in memory, with what is shared counted once among those that share it."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):
        return 0
