from __future__ import annotations

import pytest

from registry.resources import Resources
from trainers.devices import Devices, visible_devices


@pytest.mark.parametrize(
    ("environment", "count", "names"),
    [
        ({}, 2, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "3, GPU-8f2"}, 8, ["3", "GPU-8f2"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, 8, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 8, []),
    ],
)
def test_a_worker_has_the_gpus_that_it_sees(
    environment: dict[str, str], count: int, names: list[str]
) -> None:
    assert visible_devices(environment, count) == names


def test_two_runs_at_once_have_different_gpus() -> None:
    devices = Devices(["0", "1", "2"])
    with devices.lease(Resources(gpu="L4:2")) as first, devices.lease(Resources(gpu=1)) as second:
        assert (first, second) == ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2"})
    with devices.lease(Resources(gpu=3)) as third:
        assert third == {"CUDA_VISIBLE_DEVICES": "0,1,2"}


def test_a_pipeline_that_waits_shares_its_gpu_with_the_step_that_it_waits_for() -> None:
    devices = Devices(["0"])
    with devices.lease(Resources(gpu=1)) as driver, devices.lease(Resources(gpu=1)) as step:
        assert driver == step == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_run_that_asks_for_none_is_told_nothing() -> None:
    with Devices(["0"]).lease(Resources()) as environment:
        assert environment == {}
    with Devices([]).lease(Resources(gpu=1)) as environment:  # a worker that pretends to have some
        assert environment == {}
