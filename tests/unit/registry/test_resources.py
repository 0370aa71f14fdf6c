from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidInput
from registry.resources import Resources, choose, parse_bytes

amounts = st.builds(
    Resources,
    cpu=st.integers(0, 8),
    memory=st.integers(0, 8),
    gpu=st.sampled_from(["", "1", "2", "L4:1", "L4:2", "H200:1"]),
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24Gi", 24 * 2**30), ("500M", 500_000_000), ("1.5Ki", 1536), ("7", 7), ("2 TB", 2 * 10**12), (12, 12)],
)
def test_memory_is_read_in_both_families_of_units(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1Gi", "1Xi", "1Gi Gi"])
def test_what_is_not_an_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Resources(memory=text)


@pytest.mark.parametrize("gpu", ["L4:0", "L4:-1", ":", "a b", "L4:x"])
def test_what_is_not_an_accelerator_is_refused(gpu: str) -> None:
    with pytest.raises(InvalidInput):
        Resources(gpu=gpu)


def test_an_accelerator_without_a_type_is_any_of_them() -> None:
    assert Resources(gpu="L4:2").lacking(Resources(gpu=2)) == []
    assert Resources(gpu="L4:2").lacking(Resources(gpu="H200:1")) == ["gpu"]
    assert Resources(gpu="L4:2").lacking(Resources(gpu="l4:3")) == ["gpu"]


def test_what_lacks_is_named() -> None:
    demand = Resources(cpu=8, memory="1Gi", gpu="L4", disk="1T", nodes=2)
    assert Resources(cpu=2).lacking(demand) == ["cpu", "memory", "gpu", "disk", "nodes"]


@given(amounts, amounts)
def test_what_is_taken_is_not_there_any_more(total: Resources, demand: Resources) -> None:
    left = total.less(demand)
    if not total.lacking(demand):
        assert left.cpu + demand.cpu == total.cpu
        assert left.accelerators[1] + demand.accelerators[1] == total.accelerators[1]
    assert not total.lacking(left)


@given(amounts)
def test_json_keeps_resources(resources: Resources) -> None:
    assert Resources.from_json(resources.to_json()) == resources


def test_a_run_that_must_wait_keeps_what_is_free_for_itself() -> None:
    wide, narrow = Resources(cpu=4), Resources(cpu=1)
    assert choose([wide, narrow], free=Resources(cpu=3), total=Resources(cpu=4)) == []


def test_a_later_run_takes_what_the_waiting_one_does_not_need() -> None:
    waiting, small = Resources(cpu=1, gpu=1), Resources(cpu=1)
    free, total = Resources(cpu=2), Resources(cpu=4, gpu=1)
    assert choose([waiting, small, small], free, total) == [1]


def test_a_run_that_never_fits_here_holds_up_nobody() -> None:
    assert choose([Resources(cpu=99), Resources(cpu=1)], Resources(cpu=1), Resources(cpu=1)) == [1]


@given(st.lists(amounts, max_size=8), amounts)
def test_what_is_chosen_fits_together(demands: list[Resources], total: Resources) -> None:
    free = total
    for index in choose(demands, total, total):
        assert not free.lacking(demands[index])
        free = free.less(demands[index])
