"""What podium gives a vLLM process to import, and what the plugin there changes."""

from __future__ import annotations

import importlib.metadata
import time
from pathlib import Path
from types import ModuleType

from serving import idling
from serving.placing import MIDDLEWARE, place_code


def test_vllm_finds_the_plugin_by_its_entry_point(tmp_path: Path) -> None:
    code = place_code(tmp_path)
    (found,) = importlib.metadata.distributions(path=[str(code)])
    (plugin,) = found.entry_points.select(group="vllm.general_plugins")
    assert (code / f"{plugin.module}.py").is_file()
    assert callable(getattr(idling, plugin.attr))


def test_what_was_placed_before_is_gone(tmp_path: Path) -> None:
    stale = place_code(tmp_path) / MIDDLEWARE / "stale.py"
    stale.write_text("")
    place_code(tmp_path)
    assert not stale.exists()


def test_a_waiting_process_sleeps_between_looks() -> None:
    queue = ModuleType("shm_broadcast")
    queue.sched_yield = time.sleep  # type: ignore[attr-defined]
    idling.replace_yield(queue)
    before = time.thread_time()
    began = time.monotonic()
    while time.monotonic() < began + 0.1:
        queue.sched_yield()
    assert time.thread_time() - before < 0.05


def test_a_vllm_that_waits_in_another_way_is_left_alone() -> None:
    queue = ModuleType("shm_broadcast")
    idling.replace_yield(queue)
    assert not hasattr(queue, "sched_yield")
