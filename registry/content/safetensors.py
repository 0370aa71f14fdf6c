"""The header of a safetensors file, read without torch and trusted for nothing.

The format (github.com/huggingface/safetensors, README "Format"): 8 bytes little-endian length N, N bytes of
JSON that map a tensor's name to ``{"dtype", "shape", "data_offsets": [begin, end]}``, then the tensors' bytes
without holes. Readers in the field accept overlaps and repeated names; this one does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import InvalidContent

LARGEST_HEADER = 100_000_000  # bytes, the format's own limit
_PREFIX = 8
_MOST_DIMENSIONS = 64  # as many as torch has

# Bits of one element.
_BITS = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}

#: Gives ``length`` bytes from ``start`` of a file, fewer only where the file ends.
ReadRange = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: ``begin`` and ``end`` are offsets in the *file*, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Header:
    """A whole header. Tensors are in the order in which they lie in the file."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    size: int  # bytes before the first tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)


class _Fault(ValueError):
    """What is wrong with a header; becomes `InvalidContent` where the file's name is known."""


def read_header(path: Path) -> Header:
    """Read and check the header of a file.

    Raises:
        InvalidContent: the file is cut off, or its header lies about it; the message names file and tensor.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)

        def read(start: int, length: int) -> bytes:
            file.seek(start)
            return file.read(length)

        return read_header_through(read, size, name=path.name)


def read_header_through(read: ReadRange, size: int, *, name: str) -> Header:
    """Read and check a header by ranges, for a file of ``size`` bytes that lies elsewhere.

    At most two ranges are asked for, both at the beginning. ``name`` is for messages.
    """
    try:
        length = _header_length(read(0, min(_PREFIX, size)), size)
        return _parse(read(_PREFIX, length), length, size)
    except _Fault as fault:
        raise InvalidContent(
            f"{name} is not a sound safetensors file: {fault}",
            remedy="Save it again, and check that it was copied whole.",
            path=name,
        ) from None


def parse_header(data: bytes, *, name: str) -> Header:
    """Read and check the header of a whole file that is in memory."""
    return read_header_through(lambda start, length: data[start : start + length], len(data), name=name)


def _header_length(prefix: bytes, size: int) -> int:
    if len(prefix) < _PREFIX:
        raise _Fault(f"it has only {size} bytes")
    length = int.from_bytes(prefix, "little")
    if length > LARGEST_HEADER:
        raise _Fault(f"it claims a header of {length} bytes, and the largest allowed is {LARGEST_HEADER}")
    if length > size - _PREFIX:
        raise _Fault(f"it is cut off inside its header ({size} bytes, the header alone has {length})")
    return length


def _parse(text: bytes, length: int, size: int) -> Header:
    if len(text) != length:
        raise _Fault("it is cut off inside its header")
    document = _load(text)
    metadata = document.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _Fault("its __metadata__ is not a map of text to text")
    data_begin = _PREFIX + length
    tensors = [(name, _tensor(name, entry, data_begin)) for name, entry in document.items()]
    tensors.sort(key=lambda item: (item[1].begin, item[1].end))
    _check_layout(tensors, data_begin, size)
    return Header(dict(tensors), metadata, data_begin)


def _load(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise _Fault("its header is not a JSON object")
    try:
        document = json.loads(text.decode(), object_pairs_hook=_without_duplicates)
    except _Fault:
        raise
    except (ValueError, RecursionError) as error:
        raise _Fault(f"its header is not valid JSON ({error})") from None
    assert isinstance(document, dict)
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _Fault(f"its header has the key {twice!r} more than once")
    "".join(document).encode()  # JSON can escape half a character; what does not encode is no name
    return document


def _tensor(name: str, entry: Any, data_begin: int) -> Tensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _Fault(f"the entry of tensor {name!r} is not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _Fault(f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not _are_counts(shape, at_most=_MOST_DIMENSIONS) or not _are_counts(offsets, at_most=2):
        raise _Fault(f"shape or offsets of tensor {name!r} are not whole numbers")
    if len(offsets) != 2:
        raise _Fault(f"tensor {name!r} has {len(offsets)} data offsets instead of 2")
    begin, end = offsets
    bits = _BITS[dtype]
    for extent in shape:
        bits *= extent
    if bits != 8 * (end - begin):
        raise _Fault(
            f"tensor {name!r} is {dtype} {shape}, which is {bits} bits, but has {8 * (end - begin)} bits"
        )
    return Tensor(dtype, tuple(shape), data_begin + begin, data_begin + end)


def _are_counts(values: Any, at_most: int) -> bool:
    # A size in a file fits 64 bits; the bounds keep products of hostile numbers small.
    return (
        isinstance(values, list)
        and len(values) <= at_most
        and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
    )


def _check_layout(tensors: list[tuple[str, Tensor]], data_begin: int, size: int) -> None:
    expected = data_begin
    for name, tensor in tensors:
        if tensor.begin < expected:
            raise _Fault(f"tensor {name!r} overlaps the one before it")
        if tensor.begin > expected:
            raise _Fault(f"there is a hole of {tensor.begin - expected} bytes before tensor {name!r}")
        expected = tensor.end
    if expected > size:
        raise _Fault(f"it is cut off: its header describes {expected} bytes, and it has {size}")
    if expected < size:
        raise _Fault(f"it has {size - expected} bytes after its last tensor")
