"""What this machine has for runs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import psutil

from registry.capture.environment import describe_hardware
from registry.resources import Resources
from trainers.devices import visible_devices

#: Processors that a worker offers at least, so that a machine of one core can do what takes two, slower.
_FEWEST_CORES = 2

_VENDORS = re.compile(r"^(NVIDIA|Tesla|GeForce|Quadro)\s+")


def capacity(cpu: float | None = None, memory: str | None = None, gpu: str | None = None) -> Resources:
    """What this machine has, or what it is to be used for where that is given."""
    return Resources(
        cpu=max(_FEWEST_CORES, len(os.sched_getaffinity(0))) if cpu is None else cpu,
        memory=psutil.virtual_memory().total if memory is None else memory,
        gpu=_gpus() if gpu is None else gpu,
        disk=shutil.disk_usage(Path.home()).total,
    )


def gpus(offered: Resources) -> list[str]:
    """The GPUs of this machine that runs may be told to use, if some are offered to them at all."""
    if not offered.gpu:
        return []
    return visible_devices(os.environ, len(describe_hardware()["gpus"]))


def describe(resources: Resources) -> str:
    """As in ``2 cpu, 24 GiB, L4:1``."""
    parts = [f"{resources.cpu:g} cpu", f"{int(resources.memory) / 2**30:.0f} GiB", str(resources.gpu)]
    return ", ".join(part for part in parts if part)


def _gpus() -> str:
    """The GPUs of the first one's type: a worker advertises one type."""
    names = [short_name(str(gpu[0])) for gpu in describe_hardware()["gpus"]]
    return f"{names[0]}:{names.count(names[0])}" if names else ""


def short_name(product: str) -> str:
    """``NVIDIA A100-SXM4-80GB`` as ``A100``, ``NVIDIA GeForce RTX 4090`` as ``RTX4090``."""
    rest = product.strip()
    while _VENDORS.match(rest):
        rest = _VENDORS.sub("", rest)
    first, *others = re.split(r"[\s-]+", rest)
    return first + others[0] if first.isalpha() and others else first
