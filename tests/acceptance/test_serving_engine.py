"""The engine suite on a real vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.child import Child
from serving.deployment import VLLM
from serving.engine import Engine
from serving.vllm_engine import VLLMEngine
from tests.common.engine_suite import EngineSuite, Place
from tests.common.serving import write_float_lora

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

SETTINGS = VLLM(args=("--dtype", "float32", "--max-model-len", "256"))


class TestVLLM(EngineSuite):
    @pytest.fixture
    def place(self, tmp_path: Path, tiny_llama: Path) -> Iterator[Place]:
        folder = tmp_path / "replica"

        def make() -> Engine:
            return VLLMEngine(folder, SETTINGS)

        yield Place(
            make=make,
            base=tiny_llama,
            one=write_float_lora(tmp_path / "one", tiny_llama, 1),
            two=write_float_lora(tmp_path / "two", tiny_llama, 2),
            unreadable=write_float_lora(tmp_path / "high", tiny_llama, 3, rank=64),
            start_timeout=540,
        )
        Child(folder).kill_all()
