"""How much memory a process is expected to take, and what a GPU has room for."""

from __future__ import annotations

from serving.deployment import VLLM
from serving.measuring import device_room, estimate, free_memory
from serving.room import Room

GIB = 2**30


def test_a_first_process_is_estimated_by_its_weights_its_cache_and_what_vllm_takes() -> None:
    assert 12 * GIB < estimate(10 * GIB, VLLM(), []) < 16 * GIB
    larger = VLLM(env={"VLLM_CPU_KVCACHE_SPACE": "8"})
    assert estimate(10 * GIB, larger, []) - estimate(10 * GIB, VLLM(), []) == 7 * GIB


def test_what_runs_already_is_measured_and_only_its_weights_are_exchanged() -> None:
    assert estimate(3 * GIB, VLLM(), [(5 * GIB, 2 * GIB)]) == 6 * GIB
    assert estimate(3 * GIB, VLLM(), [(2 * GIB + 1, 2 * GIB)]) == 4 * GIB, "its cache is not used yet"


def test_on_a_gpu_a_second_process_fits_where_two_shares_do() -> None:
    free, total = 75_000, 80_000
    assert device_room((), f"{free}, {total}\n").fits == 1
    assert device_room(("--gpu-memory-utilization", "0.45"), f"{free}, {total}\n").fits == 2
    assert device_room(("--gpu_memory_utilization=0.45",), f"{free - 10_000}, {total}\n").fits == 1
    assert device_room((), None) == Room() and Room().is_enough_for(100)


def test_figures_are_said_in_words() -> None:
    room = Room(free=int(1.25 * GIB), each=2 * GIB)
    assert not room.is_enough_for(1)
    assert room.describe(1) == "it would take 2.0 GiB, and 1.2 GiB is free"
    assert room.describe(2) == "it would take 2 more of about 2.0 GiB, and 1.2 GiB is free"


def test_this_machine_has_memory_left() -> None:
    assert free_memory() > 0
