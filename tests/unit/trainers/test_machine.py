from __future__ import annotations

import os

import pytest

from registry.resources import Resources, choose
from trainers.catalogue import recipe
from trainers.machine import capacity, short_name


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA L4", "L4"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
    ],
)
def test_gpus_are_called_as_people_call_them(product: str, name: str) -> None:
    assert short_name(product) == name


def test_what_computes_with_every_core_goes_one_after_the_other_on_two_of_them() -> None:
    queued = [recipe(name).resources for name in ("sft", "evaluate", "sft")]
    assert choose(queued, Resources(cpu=2), Resources(cpu=2)) == [0]
    assert choose(queued, Resources(cpu=4), Resources(cpu=4)) == [0, 1]


def test_a_worker_offers_the_cores_that_it_may_use_and_never_too_few_for_a_recipe() -> None:
    offered = capacity()
    assert offered.cpu == max(2, len(os.sched_getaffinity(0)))
    assert not offered.lacking(recipe("sft").resources)
    assert capacity(cpu=0.5).cpu == 0.5
