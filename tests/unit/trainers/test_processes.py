from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainers.machine import short_name
from trainers.processes import identify, is_dead


def test_a_process_that_lives_is_not_dead() -> None:
    assert not is_dead(identify())


def test_a_process_that_has_ended_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        assert not is_dead(identity)
    assert is_dead(identity)


def test_another_process_with_its_number_is_not_taken_for_it() -> None:
    boot, namespace, pid, started = json.loads(identify())
    assert is_dead(json.dumps([boot, namespace, pid, started - 1000]))


@pytest.mark.parametrize("other", [0, 1])
def test_of_a_process_of_another_machine_or_container_nothing_is_known(other: int) -> None:
    identity = json.loads(identify())
    identity[other] = "another"
    identity[2] = 2**22 + 1  # a number that no process here has
    assert not is_dead(json.dumps(identity))


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
