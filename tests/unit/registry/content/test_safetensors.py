from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from registry.content.safetensors import Tensor, parse_header, read_header, read_header_through
from registry.errors import InvalidContent
from tests.common.content import safetensors_bytes, with_header


def _file(tensors: dict[str, Any], body_size: int) -> bytes:
    return with_header(json.dumps(tensors), bytes(body_size))


def _entry(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_sound_header_gives_names_dtypes_shapes_and_places_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_bytes({"b": ("F32", (2, 3), 0), "a": ("BF16", (4,), 1)}, {"format": "pt"}))
    header = read_header(path)
    start = header.size
    assert dict(header.tensors) == {
        "b": Tensor("F32", (2, 3), start, start + 24),
        "a": Tensor("BF16", (4,), start + 24, start + 32),
    }
    assert header.metadata == {"format": "pt"}
    assert start + 32 == path.stat().st_size


def test_the_real_library_writes_what_this_reader_reads(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"x": numpy.zeros((3, 5), "float32"), "n": numpy.zeros((0, 2), "int64"), "s": numpy.float16(1)}
    library.save_file({name: numpy.asarray(array) for name, array in arrays.items()}, tmp_path / "a")
    header = read_header(tmp_path / "a")
    found = {name: (tensor.dtype, tensor.shape) for name, tensor in header.tensors.items()}
    assert found == {"x": ("F32", (3, 5)), "n": ("I64", (0, 2)), "s": ("F16", ())}


def test_a_header_is_read_through_ranges_without_the_rest_of_the_file() -> None:
    data = safetensors_bytes({"w": ("F32", (100, 100), 0)})
    asked = []

    def read(start: int, length: int) -> bytes:
        asked.append((start, length))
        return data[start : start + length]

    header = read_header_through(read, len(data), name="w.safetensors")
    assert asked == [(0, 8), (8, header.size - 8)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "only 0 bytes"),
        (b"1234567", "only 7 bytes"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "claims a header of"),
        ((100).to_bytes(8, "little") + b"{}", "cut off inside its header"),
        (with_header("[]"), "not a JSON object"),
        (with_header(" {}"), "not a JSON object"),
        (with_header("{"), "not valid JSON"),
        (with_header(b'{"\xff": 1}'), "not valid JSON"),
        (with_header('{"a":' * 100_000), "not valid JSON"),
        (with_header('{"a":' + "9" * 10_000 + "}"), "not valid JSON"),
        (_file({"w": 1}, 0), "entry of tensor 'w'"),
        (_file({"w": {**_entry("U8", [1], 0, 1), "x": 1}}, 1), "entry of tensor 'w'"),
        (_file({"w": _entry("F99", [1], 0, 4)}, 4), "unknown dtype 'F99'"),
        (_file({"w": _entry(["U8"], [1], 0, 4)}, 4), "unknown dtype"),
        (_file({"w": _entry("U8", [True], 0, 1)}, 1), "not whole numbers"),
        (_file({"w": _entry("U8", [-1], 0, 1)}, 1), "not whole numbers"),
        (_file({"w": _entry("U8", [1.0], 0, 1)}, 1), "not whole numbers"),
        (_file({"w": _entry("U8", [1] * 100, 0, 1)}, 1), "not whole numbers"),
        (_file({"w": {"dtype": "U8", "shape": [1], "data_offsets": [1]}}, 1), "1 data offsets"),
        (_file({"w": _entry("F32", [2], 0, 4)}, 4), "which is 64 bits, but has 32"),
        (_file({"w": _entry("U8", [1], 1, 0)}, 1), "but has -8"),
        (_file({"w": _entry("F4", [3], 0, 2)}, 2), "which is 12 bits, but has 16"),
        (_file({"a": _entry("U8", [4], 0, 4), "b": _entry("U8", [4], 2, 6)}, 6), "'b' overlaps"),
        (_file({"a": _entry("U8", [4], 0, 4), "b": _entry("U8", [4], 0, 4)}, 4), "overlaps"),
        (_file({"a": _entry("U8", [4], 0, 4), "b": _entry("U8", [4], 5, 9)}, 9), "hole of 1 bytes"),
        (_file({"a": _entry("U8", [4], 2, 6)}, 6), "hole of 2 bytes"),
        (_file({"a": _entry("U8", [4], 0, 4)}, 3), "cut off: its header describes"),
        (_file({"a": _entry("U8", [4], 0, 4)}, 5), "1 bytes after its last tensor"),
        (_file({"__metadata__": {"a": 1}}, 0), "__metadata__"),
        (with_header('{"a":1,"a":2}'), "the key 'a' more than once"),
        (with_header('{"w":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"), "'dtype'"),
    ],
)
def test_a_header_that_lies_is_refused_and_the_lie_named(data: bytes, said: str) -> None:
    with pytest.raises(InvalidContent, match=r"bad\.safetensors is not a sound") as raised:
        parse_header(data, name="bad.safetensors")
    assert said in str(raised.value)


def test_sizes_beyond_64_bits_are_refused_quickly() -> None:
    data = _file({"w": _entry("U8", [1 << 62] * 60, 0, 1)}, 1)
    with pytest.raises(InvalidContent):
        parse_header(data, name="x")


@given(st.binary(max_size=300))
@example(with_header("{}"))
def test_any_bytes_are_a_sound_file_or_invalid_content(data: bytes) -> None:
    try:
        header = parse_header(data, name="x")
    except InvalidContent:
        return
    assert header.size <= len(data)


_NUMBERS = st.integers(-2, 40) | st.none() | st.text(max_size=2) | st.floats()
_ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "F32", "F4", "nope"]),
        "shape": st.lists(_NUMBERS, max_size=3),
        "data_offsets": st.lists(_NUMBERS, min_size=1, max_size=3),
    }
)


@given(st.dictionaries(st.text(max_size=3), _ENTRIES, max_size=3), st.binary(max_size=40))
def test_any_header_is_sound_or_invalid_content_and_sound_tensors_fill_the_file(
    tensors: dict[str, Any], body: bytes
) -> None:
    data = with_header(json.dumps(tensors), body)
    try:
        header = parse_header(data, name="x")
    except InvalidContent:
        return
    assert sum(tensor.size for tensor in header.tensors.values()) == len(body)


@given(st.data())
def test_a_sound_file_that_is_cut_anywhere_is_refused(data: st.DataObject) -> None:
    whole = safetensors_bytes({"a": ("F32", (3,), 0), "b": ("U8", (5,), 1)})
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InvalidContent):
        parse_header(whole[:cut], name="x")
