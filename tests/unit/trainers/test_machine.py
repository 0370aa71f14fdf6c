from __future__ import annotations

import pytest

from trainers.machine import short_name


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
