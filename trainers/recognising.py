"""What kind of failure an exception is, from its type and its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from registry.errors import InvalidInput
from registry.runs import Cause
from trainers.errors import NonRecoverableError, OOMError, TaskError

_TORCH_OOM = "OutOfMemoryError"
_CUDA_OOM_WORDS = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|HIP out of memory|OutOfMemoryError"
    r"|CUBLAS_STATUS_ALLOC_FAILED"
)
#: torch's own sentence: "Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 22.05 GiB of which
#: 1.21 GiB is free."
_NUMBERS = {
    "requested": re.compile(r"[Tt]ried to allocate ([\d.]+) (\w+)"),
    "total": re.compile(r"total capacity of ([\d.]+) (\w+)"),
    "free": re.compile(r"of which ([\d.]+) (\w+) is free"),
}
_DEVICE = re.compile(r"\bGPU (\d+)\b")
_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True, slots=True)
class Recognised:
    """What the journal says of an exception."""

    cause: Cause
    type: str
    details: dict[str, Any] = field(default_factory=dict)  # numbers, and "class", the exception's full name


def recognise(error: BaseException) -> Recognised:
    """The kind of failure that ``error`` is. A step's error in its driver stays what it is."""
    name = {"class": full_name(type(error))}
    if isinstance(error, TaskError) and "run" in error.details:
        final = isinstance(error, NonRecoverableError)
        return Recognised(
            Cause.NON_RECOVERABLE if final else Cause.ERROR,
            type(error).__name__,
            {**name, **{key: value for key, value in error.details.items() if key != "state"}},
        )
    for each in _chain(error):
        if is_cuda_oom(each):
            numbers = {"where": "cuda", **cuda_numbers(str(each)), **name}
            return Recognised(Cause.OUT_OF_MEMORY, OOMError.__name__, numbers)
        if isinstance(each, MemoryError):
            return Recognised(Cause.OUT_OF_MEMORY, OOMError.__name__, {"where": "host", **name})
    return Recognised(_cause(error), type(error).__name__, {**getattr(error, "details", {}), **name})


def _cause(error: BaseException) -> Cause:
    if isinstance(error, NonRecoverableError):
        return Cause.NON_RECOVERABLE
    if isinstance(error, OOMError):
        return Cause.OUT_OF_MEMORY
    return Cause.INVALID if isinstance(error, InvalidInput) else Cause.ERROR


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised from."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def is_cuda_oom(error: BaseException) -> bool:
    """Whether an accelerator's memory ran out: by torch's type, or by the words of what wraps it.

    torchrun's ``ChildFailedError`` has the worker's traceback in its text, and older libraries raise a plain
    ``RuntimeError``.
    """
    for cls in type(error).__mro__:
        if cls.__name__ == _TORCH_OOM and cls.__module__.partition(".")[0] == "torch":
            return True
    wrapping = isinstance(error, RuntimeError) or type(error).__name__ == "ChildFailedError"
    return wrapping and not isinstance(error, TaskError) and _CUDA_OOM_WORDS.search(str(error)) is not None


def cuda_numbers(text: str) -> dict[str, int]:
    """Bytes that were ``requested``, ``free`` in ``total``, and the ``device``, as far as the text says."""
    found = {name: match for name, pattern in _NUMBERS.items() if (match := pattern.search(text))}
    numbers = {name: int(float(m[1]) * _UNITS[m[2]]) for name, m in found.items() if m[2] in _UNITS}
    device = _DEVICE.search(text)
    return numbers | ({"device": int(device[1])} if device else {})


def full_name(cls: type) -> str:
    """``module:name`` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"
