"""Preflight beside a real vLLM, over adapters that PEFT itself saved: what it lets through really answers."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.child import Child
from serving.deployment import VLLM
from serving.engine import Fence, Launch
from serving.errors import AdapterRefused, ProbeFailed
from serving.facts import adapter_facts, base_facts
from serving.preflight import Problem, preflight, refusals
from serving.probing import probe
from serving.vllm_engine import VLLMEngine
from tests.common.engine_suite import Place, ready

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

SETTINGS = VLLM(args=("--dtype", "float32", "--max-model-len", "256"))
FENCE = Fence(1, 1, 1)
BASE = "tiny:v1"
DIGEST = "sha256:" + "b" * 64

#: LoRA settings of PEFT, and what preflight must say of them. None: it can be served.
CASES: dict[str, tuple[dict[str, Any], Problem | None]] = {
    "plain": ({}, None),
    "rslora": ({"use_rslora": True}, None),
    "all linear layers": ({"target_modules": "all-linear"}, None),
    "gaussian": ({"init_lora_weights": "gaussian"}, None),
    "rank pattern": ({"rank_pattern": {"layers.0.self_attn.q_proj": 4}}, None),
    "rank too high": ({"r": 64}, Problem.RANK),
    "rank too high in one module": ({"rank_pattern": {"q_proj": 64}}, Problem.RANK),
    "dora": ({"use_dora": True}, Problem.DORA),
    "bias": ({"lora_bias": True}, Problem.BIAS),
    "pissa": ({"init_lora_weights": "pissa"}, Problem.INIT),
    "olora": ({"init_lora_weights": "olora"}, Problem.INIT),
    "modules to save": ({"modules_to_save": ["embed_tokens"]}, Problem.MODULES_TO_SAVE),
}


def save_with_peft(base: Path, folder: Path, settings: dict[str, Any]) -> Path:
    """A LoRA of the base as PEFT makes and saves it, with random numbers in place of training."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(**{"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "o_proj"], **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns of what is made here on purpose
        tuned = get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("peft")
    return {
        name: save_with_peft(tiny_llama, home / name.replace(" ", "-"), settings)
        for name, (settings, _) in CASES.items()
    }


@pytest.fixture
def engine_folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "replica"
    Child(tmp_path / "replica").kill_all()


def test_preflight_and_vllm_agree_on_what_peft_saves(
    adapters: dict[str, Path], tiny_llama: Path, engine_folder: Path, tmp_path: Path
) -> None:
    said = {name: _preflight(folder, tiny_llama) for name, folder in adapters.items()}
    assert said == {name: problem for name, (_, problem) in CASES.items()}
    lost = _rename_modules(adapters["plain"], tmp_path / "lost")
    assert _preflight(lost, tiny_llama) is Problem.TENSOR_NAME
    answers = asyncio.run(_try_all({**adapters, "lost": lost}, tiny_llama, engine_folder))
    assert {name for name, answer in answers.items() if answer == "served"} == {
        name for name, (_, problem) in CASES.items() if problem is None
    }
    assert answers["lost"] == "served as the base", "vLLM does not say so: this is why preflight must"


def _preflight(folder: Path, base: Path) -> Problem | None:
    adapter = adapter_facts(folder, digest="sha256:" + "a" * 64, trained_on=DIGEST)
    found = refusals(preflight(adapter, base_facts(base, digest=DIGEST), max_rank=SETTINGS.max_lora_rank))
    return found[0].problem if found else None


def _rename_modules(adapter: Path, folder: Path) -> Path:
    """The same adapter for layers that the base does not have."""
    from safetensors.torch import load_file, save_file

    folder.mkdir()
    (folder / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    tensors = load_file(adapter / "adapter_model.safetensors")
    renamed = {name.replace(".layers.", ".layers.7"): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "adapter_model.safetensors")
    return folder


async def _try_all(adapters: dict[str, Path], base: Path, folder: Path) -> dict[str, str]:
    """What vLLM does with each: served, served as the base, or refused."""
    engine = VLLMEngine(folder, SETTINGS)
    await engine.start(Launch(BASE, base, "right"))
    make: Callable[[], VLLMEngine] = lambda: engine  # noqa: E731
    await ready(engine, Place(make, base, base, base, base, start_timeout=540))
    baseline = await probe(engine, BASE, None)
    answers = {}
    for number, (name, path) in enumerate(adapters.items()):
        try:
            await engine.load(f"try:v{number}", path, FENCE)
            await probe(engine, f"try:v{number}", baseline)
            answers[name] = "served"
        except AdapterRefused:
            answers[name] = "refused"
        except ProbeFailed:
            answers[name] = "served as the base"
    await engine.stop(20)
    return answers
