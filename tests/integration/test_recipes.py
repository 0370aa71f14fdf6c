"""Recipes on a real, if tiny, model: training, judging, merging."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from registry.artifacts import Adapter, Dataset, Model, StoredContent
from registry.content.kinds import Kind, validate
from registry.content.safetensors import read_header
from registry.content.scan import scan
from registry.errors import InvalidContent, InvalidInput
from registry.reports import read_report
from trainers.recipes.evaluate import evaluate
from trainers.recipes.merge import merge
from trainers.recipes.scoring import completion_tokens, log_likelihoods, prompt_tokens
from trainers.recipes.sft import sft

# Libraries of others warn at import; what they warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

ROWS = [
    *(("the parcel is late", "shipping"), ("where is my box", "shipping"), ("no delivery yet", "shipping")),
    *(("my card was charged", "billing"), ("send me an invoice", "billing"), ("the tax is wrong", "billing")),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six examples with two labels, to train on and to judge by."""
    folder = tmp_path_factory.mktemp("data")
    lines = "".join(json.dumps({"prompt": prompt, "completion": label}) + "\n" for prompt, label in ROWS)
    (folder / "train.jsonl").write_text(lines)
    (folder / "heldout.jsonl").write_text(lines)
    return folder


@dataclass(frozen=True)
class Trained:
    adapter: Path
    log: list[tuple[int, dict[str, float]]]


@pytest.fixture(scope="module")
def trained(tiny_llama: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A LoRA adapter that has learned something of the six examples."""
    log: list[tuple[int, dict[str, float]]] = []
    adapter = sft(
        tiny_llama,
        data,
        output=tmp_path_factory.mktemp("trained") / "adapter",
        rank=4,
        lr=0.03,
        steps=15,
        batch=6,
        on_log=lambda step, logged: log.append((step, dict(logged))),
    )
    return Trained(Path(adapter), log)


@pytest.fixture(scope="module")
def learned(tiny_llama: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model that knows the six examples by heart."""
    folder = tmp_path_factory.mktemp("learned") / "model"
    return Path(sft(tiny_llama, data, output=folder, method="full", lr=0.02, steps=25, batch=6))


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def report_of(folder: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((Path(folder) / "report.json").read_text())
    return document


# --- sft


def test_an_adapter_folder_holds_an_adapter_and_nothing_else(trained: Trained) -> None:
    assert set(files_of(trained.adapter)) == {"adapter_config.json", "adapter_model.safetensors"}
    assert validate(Kind.ADAPTER, scan(trained.adapter)).notices == ()


def test_an_adapter_does_not_remember_where_its_base_lay(trained: Trained, tiny_llama: Path) -> None:
    assert str(tiny_llama.parent).encode() not in files_of(trained.adapter)["adapter_config.json"]


def test_training_logs_a_falling_loss_for_each_step(trained: Trained) -> None:
    losses = [logged["loss"] for _, logged in trained.log if "loss" in logged]
    assert [step for step, logged in trained.log if "loss" in logged] == list(range(1, 16))
    assert losses[-1] < losses[0] - 0.3


def test_only_the_completion_carries_loss(trained: Trained, tiny_llama: Path, data: Path) -> None:
    """The first step's loss, before anything is learned, is the base's on the completions' tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype="auto").eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    total, count = 0.0, 0
    for prompt, label in ROWS:
        said = [{"role": "user", "content": prompt}]
        before = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(
            [*said, {"role": "assistant", "content": label}], tokenize=False
        )
        ids, start = tokenizer(whole)["input_ids"], len(tokenizer(before)["input_ids"])
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
        total -= sum(float(logits[at - 1, ids[at]]) for at in range(start, len(ids)))
        count += len(ids) - start
    assert trained.log[0][1]["loss"] == pytest.approx(total / count, rel=0.01)


def test_the_same_seed_trains_the_same_adapter(tiny_llama: Path, data: Path, tmp_path: Path) -> None:
    def train(name: str, seed: int) -> bytes:
        folder = sft(tiny_llama, data, output=tmp_path / name, rank=2, steps=2, batch=2, seed=seed)
        return files_of(Path(folder))["adapter_model.safetensors"]

    assert train("a", 1) == train("b", 1) != train("c", 2)


def test_full_training_gives_a_whole_model_in_the_bases_dtype(
    tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    model = sft(tiny_llama, data, output=tmp_path / "model", method="full", lr=1e-3, steps=2, batch=2)
    assert isinstance(model, Model)
    assert validate(Kind.MODEL, scan(model.path)).notices == ()
    before, after = (read_header(folder / "model.safetensors") for folder in (tiny_llama, model.path))
    assert {name: (t.dtype, t.shape) for name, t in after.tensors.items()} == {
        name: (t.dtype, t.shape) for name, t in before.tensors.items()
    }
    assert files_of(model.path)["model.safetensors"] != files_of(tiny_llama)["model.safetensors"]
    assert "training_args.bin" not in files_of(model.path)


def test_qlora_trains_an_adapter_over_a_base_in_4_bits(
    tiny_llama: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it makes is an adapter like any other, and it has learned on the whole base, too."""
    import bitsandbytes

    held: list[int] = []
    quantised = bitsandbytes.nn.Linear4bit.forward
    monkeypatch.setattr(
        bitsandbytes.nn.Linear4bit, "forward", lambda self, x: (held.append(1), quantised(self, x))[1]
    )
    log: list[float] = []
    adapter = sft(
        tiny_llama,
        data,
        output=tmp_path / "adapter",
        method="qlora",
        rank=4,
        lr=0.03,
        steps=15,
        batch=6,
        on_log=lambda _, logged: log.append(logged["loss"]),
    )
    assert isinstance(adapter, Adapter) and held
    assert log[-1] < log[0] - 0.3
    assert {t.dtype for t in read_header(adapter.path / "adapter_model.safetensors").tensors.values()} == {
        "F32"
    }
    score = report_of(evaluate(adapter, data, tiny_llama, output=tmp_path / "report"))["metrics"]["nll"]
    assert score["value"] < score["base"] - 0.3


def test_another_method_is_refused(tiny_llama: Path, data: Path) -> None:
    with pytest.raises(InvalidInput, match="magic"):
        sft(tiny_llama, data, method="magic")  # type: ignore[arg-type]


# --- evaluate


def test_batched_and_cached_scores_are_those_of_one_plain_pass_each(tiny_llama: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12], [13, 14, 15]]
    candidates = [[[20, 21, 22], [23], [24, 25]], [[30], [31, 32, 33], [34]]]
    found = log_likelihoods(model, prompts, candidates)
    for completions, sums in zip(candidates, found, strict=True):
        for prompt, completion, total in zip(prompts, completions, sums, strict=True):
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + completion])).logits[0].log_softmax(-1)
            plain = sum(float(logits[len(prompt) + n - 1, token]) for n, token in enumerate(completion))
            assert total == pytest.approx(plain, abs=1e-4)


def test_a_completion_ends_with_the_token_at_which_generation_stops(tiny_llama: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    prompt = [{"role": "user", "content": "hello"}]
    tokens = completion_tokens(tokenizer, prompt, [{"role": "assistant", "content": "billing"}])
    assert tokenizer.decode(tokens) == "billing<|im_end|>"
    assert tokenizer.decode(prompt_tokens(tokenizer, prompt)).endswith("<|im_start|>assistant\n")


def test_a_tokenizer_without_a_chat_template_reads_plain_text(tiny_llama: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.chat_template = None
    prompt = [{"role": "user", "content": "hello"}]
    assert tokenizer.decode(prompt_tokens(tokenizer, prompt)) == "hello"
    tokens = completion_tokens(tokenizer, prompt, [{"role": "assistant", "content": " there"}])
    assert tokenizer.decode(tokens) == " there<|im_end|>"


def test_an_adapter_that_has_learned_beats_its_base(
    trained: Trained, tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    document = report_of(evaluate(trained.adapter, data, tiny_llama, output=tmp_path / "report"))
    assert document["metrics"]["nll"]["value"] < document["metrics"]["nll"]["base"]
    assert document["comparison"]["nll"]["high"] < 0


def test_a_model_that_knows_the_answers_is_always_right(learned: Path, data: Path, tmp_path: Path) -> None:
    metrics = report_of(evaluate(learned, data, output=tmp_path / "report"))["metrics"]
    assert metrics["accuracy"]["value"] == 1
    assert metrics["nll"]["value"] < 1
    rows = (tmp_path / "report" / "examples.jsonl").read_text().splitlines()
    assert all((row := json.loads(line))["answer"] == row["expected"] for line in rows)


def test_a_report_is_what_the_registry_reads(
    trained: Trained, tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    folder = Path(evaluate(trained.adapter, data, tiny_llama, output=tmp_path / "report"))
    report = read_report(lambda name: (folder / name).read_bytes())
    assert report.document.evaluator == "evaluate"
    assert len(report.tuned["accuracy"]) == len(report.base["nll"]) == len(ROWS)
    mean = sum(report.base["nll"].values()) / len(ROWS)
    assert report.document.metrics["nll"].base == pytest.approx(mean)


def test_an_adapter_that_has_learned_nothing_scores_as_its_base(
    tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    # So little that it is lost in rounding; an lr of 0 is refused.
    untrained = sft(tiny_llama, data, output=tmp_path / "untrained", rank=2, lr=1e-30, steps=1)
    document = report_of(evaluate(untrained, data, tiny_llama, output=tmp_path / "report"))
    for metric in document["metrics"].values():
        assert metric["value"] == metric["base"]
    assert document["comparison"]["nll"]["p_value"] == 1


def test_a_whole_model_is_judged_with_or_without_a_base(
    trained: Trained, tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    merged = merge(tiny_llama, trained.adapter, output=tmp_path / "merged")
    alone = report_of(evaluate(merged, data, output=tmp_path / "alone"))
    assert alone["base"] is alone["comparison"] is alone["metrics"]["nll"]["base"] is None
    beside = report_of(evaluate(merged, data, tiny_llama, output=tmp_path / "beside"))
    assert beside["metrics"]["nll"]["value"] == pytest.approx(alone["metrics"]["nll"]["value"])
    assert beside["metrics"]["nll"]["base"] > beside["metrics"]["nll"]["value"]


def test_free_text_is_judged_by_likelihood_alone(tiny_llama: Path, tmp_path: Path) -> None:
    rows = ({"prompt": f"say {n}", "completion": f"it is {n} and nothing else"} for n in range(3))
    (tmp_path / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert set(report_of(evaluate(tiny_llama, tmp_path, output=tmp_path / "report"))["metrics"]) == {"nll"}


def test_an_example_that_is_there_twice_counts_once(tiny_llama: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "heldout.jsonl").write_text((data / "heldout.jsonl").read_text() * 2)
    document = report_of(evaluate(tiny_llama, tmp_path, output=tmp_path / "report"))
    assert document["metrics"]["nll"]["n"] == len(ROWS)
    assert len((tmp_path / "report" / "examples.jsonl").read_text().splitlines()) == len(ROWS)


def test_weights_that_are_not_finite_are_refused(
    trained: Trained, tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    broken = shutil.copytree(trained.adapter, tmp_path / "broken")
    weights = load_file(broken / "adapter_model.safetensors")
    save_file(
        {name: tensor * float("nan") for name, tensor in weights.items()},
        broken / "adapter_model.safetensors",
    )
    with pytest.raises(InvalidContent, match="not sound"):
        evaluate(broken, data, tiny_llama, output=tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_training_that_diverges_gives_no_adapter(tiny_llama: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="diverged"):
        sft(tiny_llama, data, output=tmp_path / "adapter", lr=1e30, steps=4)
    assert not (tmp_path / "adapter").exists()


def test_an_adapter_without_a_base_cannot_be_judged(trained: Trained, data: Path) -> None:
    with pytest.raises(InvalidInput, match="base"):
        evaluate(trained.adapter, data)


def test_an_adapter_of_another_base_is_refused(trained: Trained, smaller: Path, data: Path) -> None:
    with pytest.raises(InvalidContent, match="does not fit"):
        evaluate(trained.adapter, data, smaller)


@pytest.fixture(scope="module")
def smaller(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of another width, with the same tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("smaller") / "model"
    shutil.copytree(tiny_llama, folder)
    config = AutoConfig.from_pretrained(tiny_llama, hidden_size=32, intermediate_size=48, head_dim=16)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture
def stored(tiny_llama: Path, data: Path) -> tuple[Model, Dataset]:
    """Base and data as they come from a registry, with digests."""

    def content(kind: str) -> StoredContent:
        return StoredContent(
            f"value-{kind}", kind, "sha256:" + kind.encode().hex().ljust(64, "0"), f"{kind}:v1"
        )

    def at(path: Path) -> Callable[[], Path]:
        return lambda: path

    return Model.stored(content("model"), at(tiny_llama)), Dataset.stored(content("dataset"), at(data))


def test_what_a_base_scored_is_kept_and_used_again(
    trained: Trained, stored: tuple[Model, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    base, data = stored
    first = report_of(evaluate(Adapter(trained.adapter), data, base, output=tmp_path / "first"))
    (kept,) = (tmp_path / "home").rglob("*.json")
    rows = json.loads(kept.read_text())
    kept.write_text(json.dumps([{**row, "nll": row["nll"] + 1} for row in rows]))
    second = report_of(evaluate(Adapter(trained.adapter), data, base, output=tmp_path / "second"))
    assert second["metrics"]["nll"]["base"] == pytest.approx(first["metrics"]["nll"]["base"] + 1)
    assert second["base"] == {"digest": base.digest, "ref": "model:v1"}
    assert second["dataset"] == {"digest": data.digest, "ref": "dataset:v1", "split": "heldout"}


def test_damaged_kept_scores_are_made_again(
    trained: Trained, stored: tuple[Model, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    base, data = stored
    first = report_of(evaluate(trained.adapter, data, base, output=tmp_path / "first"))
    (kept,) = (tmp_path / "home").rglob("*.json")
    kept.write_text(kept.read_text()[:40])
    assert report_of(evaluate(trained.adapter, data, base, output=tmp_path / "second")) == first
    assert len(json.loads(kept.read_text())) == len(ROWS)


# --- merge


def test_a_merge_changes_the_bytes_of_adapted_tensors_and_no_others(
    trained: Trained, tiny_llama: Path, tmp_path: Path
) -> None:
    merged = files_of(Path(merge(tiny_llama, trained.adapter, output=tmp_path / "merged")))
    base = files_of(tiny_llama)
    assert {name for name in merged if merged[name] != base[name]} == {"model.safetensors"}
    assert merged.keys() == base.keys()
    before, after = base["model.safetensors"], merged["model.safetensors"]
    header = read_header(tiny_llama / "model.safetensors")
    changed = {n for n, t in header.tensors.items() if before[t.begin : t.end] != after[t.begin : t.end]}
    assert changed == {name for name in header if name.endswith("_proj.weight")}
    assert after[: header.size] == before[: header.size]


def test_a_merged_model_answers_as_the_adapter_does(
    trained: Trained, tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    merged = merge(tiny_llama, trained.adapter, output=tmp_path / "merged")
    tuned = report_of(evaluate(trained.adapter, data, tiny_llama, output=tmp_path / "tuned"))
    whole = report_of(evaluate(merged, data, output=tmp_path / "whole"))
    assert whole["metrics"]["accuracy"]["value"] == tuned["metrics"]["accuracy"]["value"]
    assert whole["metrics"]["nll"]["value"] == pytest.approx(tuned["metrics"]["nll"]["value"], abs=0.1)


@pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`")
def test_an_adapter_that_would_untie_the_output_layer_is_refused(
    tiny_llama: Path, data: Path, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    config = LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    with pytest.raises(InvalidContent, match=r"lm_head|embed_tokens"):
        merge(tiny_llama, tmp_path / "adapter", output=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_an_adapter_of_another_base_cannot_be_merged(trained: Trained, smaller: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match="does not fit"):
        merge(smaller, trained.adapter, output=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
