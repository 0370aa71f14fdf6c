"""The environment a run ran in: packages, CUDA, hardware, and the few variables that change results."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import psutil

from registry.capture.secrets import scrub

#: Variables that change what a training run computes, or how fast. No others are recorded.
RECORDED_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "LANG",
    "LC_ALL",
    "LOCAL_RANK",
    "MKL_NUM_THREADS",
    "NCCL_*",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "RANK",
    "TOKENIZERS_PARALLELISM",
    "TORCH_*",
    "TZ",
    "WORLD_SIZE",
)
#: Versions that are named by themselves, because they are asked for most.
NAMED_PACKAGES = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "peft",
    "podium",
    "torch",
    "transformers",
    "trl",
    "vllm",
)


def describe_environment(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Python, packages, CUDA, hardware and variables, as plain JSON. Imports none of what it names."""
    lock = locked_packages(importlib.metadata.distributions())
    versions = dict(line.split("==", 1) for line in lock if "==" in line)
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "versions": {name: versions[name] for name in NAMED_PACKAGES if name in versions},
        "cuda": _cuda_of_torch(),
        "hardware": describe_hardware(),
        "variables": recorded_variables(os.environ if variables is None else variables),
        "lock": lock,
    }


def locked_packages(distributions: Iterable[importlib.metadata.Distribution]) -> list[str]:
    """A requirements line a package, sorted: ``name==version``, or ``name @ address`` from elsewhere."""
    lines: dict[str, str] = {}
    for distribution in distributions:
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name and name not in lines:  # the first on the path is the one that is imported
            lines[name] = _requirement(name, distribution)
    return [lines[name] for name in sorted(lines)]


def _requirement(name: str, distribution: importlib.metadata.Distribution) -> str:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    if commit:
        return f"{name} @ {origin['vcs_info'].get('vcs', 'git')}+{scrub(origin['url'])}@{commit}"
    return f"{name}=={distribution.version}"


def _cuda_of_torch() -> str | None:
    """The CUDA that the installed torch was built for; None for a CPU build or no torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        # Reading one line takes no time; importing torch takes seconds.
        text = (Path(found.origin).parent / "version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return match[1] if match else None


def describe_hardware() -> dict[str, Any]:
    """Processor, cores, memory in bytes, and accelerators with their driver."""
    gpus = _nvidia_gpus()
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "gpus": [gpu[:2] for gpu in gpus],
        "driver": gpus[0][2] if gpus else None,
    }


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def _nvidia_gpus() -> list[list[str]]:
    """Name, memory and driver of each GPU, as the driver's own tool prints them."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == 3]


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the environment variables that are on the list, scrubbed."""
    return {
        name: scrub(value)
        for name, value in sorted(variables.items())
        if any(fnmatchcase(name, pattern) for pattern in RECORDED_VARIABLES)
    }
