"""Preflight: what is refused before it is loaded, and what is let through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.facts import AdapterFacts, BaseFacts, adapter_facts, base_facts
from serving.preflight import Finding, Problem, preflight, refusals
from tests.common.content import safetensors_bytes
from tests.common.serving import write_base, write_lora

DIGEST = "sha256:" + "b" * 64


@pytest.fixture
def base(tmp_path: Path) -> BaseFacts:
    return base_facts(write_base(tmp_path / "base"), digest=DIGEST)


def facts(home: Path, trained_on: str | None = DIGEST, **changes: Any) -> AdapterFacts:
    folder = write_lora(home / "adapter", **changes)
    return adapter_facts(folder, digest="sha256:" + "a" * 64, trained_on=trained_on)


def problems(findings: tuple[Finding, ...]) -> list[Problem]:
    return [finding.problem for finding in findings]


def test_a_plain_adapter_of_this_base_has_no_findings(tmp_path: Path, base: BaseFacts) -> None:
    assert preflight(facts(tmp_path), base, max_rank=16) == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config": {"peft_type": "IA3"}}, Problem.NOT_LORA),
        ({"rank": 32}, Problem.RANK),
        ({"config": {"rank_pattern": {"q_proj": 64}}}, Problem.RANK),
        ({"config": {"use_dora": True}}, Problem.DORA),
        ({"config": {"bias": "all"}}, Problem.BIAS),
        ({"config": {"lora_bias": True}}, Problem.BIAS),
        ({"config": {"init_lora_weights": "pissa"}}, Problem.INIT),
        ({"config": {"init_lora_weights": "pissa_niter_4"}}, Problem.INIT),
        ({"config": {"init_lora_weights": "olora"}}, Problem.INIT),
        ({"config": {"init_lora_weights": "loftq"}}, Problem.INIT),
        ({"config": {"modules_to_save": ["lm_head"]}}, Problem.MODULES_TO_SAVE),
        ({"config": {"alora_invocation_tokens": [1]}}, Problem.FEATURE),
        ({"config": {"layer_replication": [[0, 1]]}}, Problem.FEATURE),
        ({"prefix": "base_model.model.transformer"}, Problem.TENSOR_NAME),
        ({"prefix": "model"}, Problem.TENSOR_NAME),
        ({"width": 24}, Problem.TENSOR_SHAPE),
        ({"width": 8}, Problem.TENSOR_SHAPE),
        ({"files": {"tokenizer.json": '{"model": {"vocab": {"z": 0}}}'}}, Problem.TOKENIZER),
        ({"files": {"chat_template.jinja": "{{ other }}"}}, Problem.CHAT_TEMPLATE),
    ],
    ids=lambda value: value.value if isinstance(value, Problem) else None,
)
def test_what_vllm_refuses_or_would_serve_wrongly_is_certain(
    tmp_path: Path, base: BaseFacts, changes: dict[str, Any], problem: Problem
) -> None:
    found = refusals(preflight(facts(tmp_path, **changes), base, max_rank=16))
    assert problems(found) == [problem] * len(found)
    assert found
    assert all(finding.message for finding in found)


@pytest.mark.parametrize("init", [True, False, "gaussian", "eva", "orthogonal"])
def test_inits_that_leave_the_base_as_it_is_pass(tmp_path: Path, base: BaseFacts, init: Any) -> None:
    assert preflight(facts(tmp_path, config={"init_lora_weights": init}), base, max_rank=16) == ()


def test_an_adapter_of_another_base_is_refused_and_of_an_unknown_one_let_through_with_a_word(
    tmp_path: Path, base: BaseFacts
) -> None:
    other = preflight(facts(tmp_path / "x", trained_on="sha256:" + "c" * 64), base, max_rank=16)
    assert problems(refusals(other)) == [Problem.OTHER_BASE]
    unknown = preflight(facts(tmp_path / "y", trained_on=None), base, max_rank=16)
    assert problems(unknown) == [Problem.UNKNOWN_BASE]
    assert refusals(unknown) == ()


def test_how_a_run_padded_and_cut_its_batches_does_not_make_another_tokenizer(
    tmp_path: Path, base: BaseFacts
) -> None:
    same = {"model": {"vocab": {"a": 0}}, "padding": {"length": 8}, "truncation": {"max_length": 9}}
    template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}\n"
    files = {"tokenizer.json": json.dumps(same), "chat_template.jinja": template}
    assert preflight(facts(tmp_path, files=files), base, max_rank=16) == ()


def test_an_adapter_that_was_never_trained_is_refused(tmp_path: Path, base: BaseFacts) -> None:
    folder = write_lora(tmp_path / "adapter")
    whole = (folder / "adapter_model.safetensors").read_bytes()
    sound = adapter_facts(folder, digest="sha256:" + "a" * 64, trained_on=DIGEST)
    zeroed = bytearray(whole)
    for name, tensor in sound.tensors.items():
        if "lora_B" in name:
            zeroed[tensor.begin : tensor.end] = bytes(tensor.size)
    (folder / "adapter_model.safetensors").write_bytes(bytes(zeroed))
    untrained = adapter_facts(folder, digest="sha256:" + "a" * 64, trained_on=DIGEST)
    assert problems(preflight(untrained, base, max_rank=16)) == [Problem.NO_EFFECT]
    assert not sound.all_zero


def test_half_of_a_pair_and_tensors_that_are_not_loras_are_refused(tmp_path: Path, base: BaseFacts) -> None:
    folder = write_lora(tmp_path / "adapter")
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{module}.lora_A.weight": ("F32", (4, 16), 1),
        f"{module}.weight": ("F32", (16, 16), 2),
    }
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
    found = preflight(adapter_facts(folder, digest=DIGEST, trained_on=DIGEST), base, max_rank=16)
    assert set(problems(found)) == {Problem.TENSOR_NAME, Problem.TENSOR_SHAPE}


def test_tied_embeddings_are_found_where_they_are_stored(tmp_path: Path, base: BaseFacts) -> None:
    folder = write_lora(tmp_path / "adapter")
    tensors = {
        "base_model.model.lm_head.lora_A.weight": ("F32", (4, 16), 1),
        "base_model.model.lm_head.lora_B.weight": ("F32", (32, 4), 2),
        "base_model.model.model.embed_tokens.lora_embedding_A": ("F32", (4, 32), 3),
        "base_model.model.model.embed_tokens.lora_embedding_B": ("F32", (16, 4), 4),
    }
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
    assert preflight(adapter_facts(folder, digest=DIGEST, trained_on=DIGEST), base, max_rank=16) == ()


def test_a_quantised_base_whose_shapes_cannot_be_compared_is_said_and_let_through(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    tensors = {f"model.layers.{layer}.self_attn.q_proj.qweight": ("U8", (16, 4), layer) for layer in range(2)}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    found = preflight(facts(tmp_path), base_facts(folder, digest=DIGEST), max_rank=16)
    assert problems(found) == [Problem.NOT_CHECKED]
    assert refusals(found) == ()


def test_another_file_name_than_the_one_that_vllm_reads_is_refused(tmp_path: Path, base: BaseFacts) -> None:
    folder = write_lora(tmp_path / "adapter")
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model-00001-of-00001.safetensors")
    found = preflight(adapter_facts(folder, digest=DIGEST, trained_on=DIGEST), base, max_rank=16)
    assert Problem.FILE_NAME in problems(refusals(found))
