from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from registry.content.chunking import LARGEST, PACKED, SMALL, cut_plain, cut_safetensors
from registry.content.safetensors import Header, Tensor

_MIB = 1 << 20


def _header(sizes: dict[str, int], size: int = 100) -> Header:
    tensors = {}
    at = size
    for name, length in sizes.items():
        tensors[name] = Tensor("U8", (length,), at, at + length)
        at += length
    return Header(tensors, {}, size)


def _cut(sizes: dict[str, int], header_size: int = 100) -> list[int]:
    return cut_safetensors(_header(sizes, header_size), header_size + sum(sizes.values()))


def _pieces(sizes: dict[str, int], header_size: int = 100) -> set[tuple[str, ...]]:
    """Each chunk but the header's, as the tensors it holds."""
    ends = list(accumulate(_cut(sizes, header_size)))
    pieces = set()
    for begin, end in pairwise(ends):
        tensors = _header(sizes, header_size).tensors.items()
        pieces.add(tuple(name for name, t in tensors if t.begin < end and t.end > begin))
    return pieces


def test_an_empty_file_has_no_chunks() -> None:
    assert cut_plain(0) == []


def test_a_plain_file_is_cut_every_64_mib() -> None:
    assert cut_plain(150 * _MIB) == [64 * _MIB, 64 * _MIB, 22 * _MIB]


def test_the_header_is_a_chunk_of_its_own() -> None:
    assert _cut({"w": SMALL}) == [100, SMALL]


def test_a_large_tensor_is_cut_inside_and_only_there() -> None:
    assert _cut({"a": 65 * _MIB, "b": SMALL}) == [100, 64 * _MIB, _MIB, SMALL]


def test_a_tensor_that_is_not_small_shares_no_chunk() -> None:
    pieces = _pieces({"norm1": 10, "q": SMALL, "norm2": 10, "k": 3 * _MIB, "norm3": 10})
    assert pieces == {("norm1",), ("q",), ("norm2",), ("k",), ("norm3",)}


def test_small_neighbours_are_packed() -> None:
    sizes = {f"layer.{index}": 1000 for index in range(1000)}
    assert len(_cut(sizes)) < 150


def test_a_file_without_tensors_is_its_header() -> None:
    assert _cut({}) == [100]


_SIZES = st.dictionaries(
    st.text(max_size=6),
    st.sampled_from([0, 1, 500, SMALL - 1, SMALL, PACKED, LARGEST, LARGEST + 1])
    | st.integers(0, 3 * LARGEST),
    max_size=60,
)


@given(_SIZES, st.integers(8, 100_000))
def test_chunks_fill_the_file_and_keep_the_limits(sizes: dict[str, int], header_size: int) -> None:
    chunks = _cut(sizes, header_size)
    assert sum(chunks) == header_size + sum(sizes.values())
    assert all(0 < chunk <= LARGEST for chunk in chunks)


@given(st.dictionaries(st.text(max_size=6), st.integers(1, SMALL - 1), max_size=60))
def test_a_pack_keeps_its_limit(sizes: dict[str, int]) -> None:
    assert all(chunk <= PACKED for chunk in _cut(sizes)[1:])


@given(
    st.dictionaries(st.text(max_size=6), st.integers(1, 2 * SMALL), min_size=1, max_size=60),
    st.integers(8, 999),
)
def test_the_cuts_around_tensors_do_not_depend_on_the_header(sizes: dict[str, int], header_size: int) -> None:
    assert _pieces(sizes) == _pieces(sizes, header_size)


def test_after_a_tensor_is_added_packs_are_soon_the_old_ones() -> None:
    sizes = {f"layer.{index}": 20_000 for index in range(400)}
    before = _pieces(sizes)
    after = _pieces({"a.new.one": 30_000, **sizes})
    assert len(before - after) <= 3
    assert len(before) > 20
