from __future__ import annotations

import io
import json
import pickle
import random
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.content.pickles import is_pickle
from tests.common.content import safetensors_bytes, some_bytes, with_header


class Custom:
    """An object whose pickle imports something."""


def _is_pickle(tmp_path: Path, data: bytes) -> bool:
    path = tmp_path / "file"
    path.write_bytes(data)
    return is_pickle(path)


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    "value",
    [None, 7, "text", {"a": [1, 2.5]}, Custom(), b"x" * 300_000, list(range(50_000))],
    ids=lambda value: type(value).__name__,
)
def test_a_pickle_of_a_marked_protocol_is_found(tmp_path: Path, protocol: int, value: Any) -> None:
    assert _is_pickle(tmp_path, pickle.dumps(value, protocol=protocol))


@pytest.mark.parametrize("protocol", [0, 1])
@pytest.mark.parametrize("value", ["text", {"a": 1}, Custom(), [None] * 50_000, "x" * 100_000])
def test_a_pickle_of_an_old_protocol_is_found(tmp_path: Path, protocol: int, value: Any) -> None:
    assert _is_pickle(tmp_path, pickle.dumps(value, protocol=protocol))


def test_a_pickle_that_runs_a_program_is_found_without_a_mark(tmp_path: Path) -> None:
    assert _is_pickle(tmp_path, b"cos\nsystem\n(S'echo'\ntR.")
    assert _is_pickle(tmp_path, b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93X\x04\x00\x00\x00echo\x85R.")
    assert _is_pickle(tmp_path, b"N0" * 30_000 + b"cos\nsystem\n(S'echo'\ntR.")


def test_a_pickle_is_found_with_more_bytes_behind_it(tmp_path: Path) -> None:
    assert _is_pickle(tmp_path, pickle.dumps({"a": 1}) + b"more")
    assert _is_pickle(tmp_path, b"cos\nsystem\n(S'echo'\ntR." + b"more")


def test_a_pickle_that_is_cut_off_is_still_one(tmp_path: Path) -> None:
    assert _is_pickle(tmp_path, pickle.dumps(list(range(1000)))[:-500])


@pytest.mark.parametrize("member", ["archive/data.pkl", "data.pkl", "weights/whatever"])
def test_a_zip_with_a_pickle_in_it_is_found(tmp_path: Path, member: str) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "text")
        archive.writestr(member, pickle.dumps(Custom()))
    assert _is_pickle(tmp_path, held.getvalue())


def test_a_zip_without_pickles_is_not_one(tmp_path: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("readme.txt", "text")
    assert not _is_pickle(tmp_path, held.getvalue())


def test_a_tar_with_a_pickle_in_it_is_found(tmp_path: Path) -> None:
    held = io.BytesIO()
    data = pickle.dumps(Custom())
    with tarfile.open(fileobj=held, mode="w") as archive:
        member = tarfile.TarInfo("pickle")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    assert _is_pickle(tmp_path, held.getvalue())


def _array(descr: str) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 8


def test_a_numpy_array_is_one_only_if_it_holds_objects(tmp_path: Path) -> None:
    assert _is_pickle(tmp_path, _array("|O"))
    assert not _is_pickle(tmp_path, _array("<f8"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"N.",
        b"N.\n",
        b"I am a text.\n",
        b"can you\ngo on.\n",
        b"c\n",
        b"]\n",
        b"(This is in brackets.)\n",
        json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode(),
        b"PAR1" + bytes(range(256)) + b"PAR1",
        "\u0080\u0002text".encode(),
        b"\x80\x02",
        b"\x80\x02" + bytes(600),
        safetensors_bytes({"w": ("F32", (16, 16), 1)}),
        with_header(
            b"{}".ljust(0x280)
        ),  # its length, little-endian, begins with the bytes of a protocol mark
        with_header(b"{}".ljust(0x480)),
    ],
)
def test_text_and_other_formats_are_not_pickles(tmp_path: Path, data: bytes) -> None:
    assert not _is_pickle(tmp_path, data)


def test_this_projects_own_sources_are_not_pickles() -> None:
    sources = list(Path(__file__).parents[4].glob("registry/**/*.py"))
    assert sources
    assert not [path for path in sources if is_pickle(path)]


def test_random_bytes_are_not_pickles(tmp_path: Path) -> None:
    lengths = random.Random(1)
    assert not any(_is_pickle(tmp_path, some_bytes(lengths.randrange(2000), seed)) for seed in range(1000))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=_JSON, protocol=st.integers(2, 5))
def test_whatever_is_pickled_is_found(
    tmp_path_factory: pytest.TempPathFactory, value: Any, protocol: int
) -> None:
    assert _is_pickle(tmp_path_factory.getbasetemp(), pickle.dumps(value, protocol=protocol))


@given(value=_JSON)
def test_no_json_is_taken_for_a_pickle(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    assert not _is_pickle(tmp_path_factory.getbasetemp(), json.dumps(value).encode())
