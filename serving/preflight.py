"""Preflight: can this adapter be served on this base by this engine? Answered offline, before it is loaded.

The rules are those of vLLM 0.32 (``vllm/lora/peft_helper.py`` and ``lora_model.py``), and those that it does
not check: it slices tensors of a wrong shape in, and answers as the base for modules that match nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from serving.facts import ADAPTER_FILE, AdapterFacts, BaseFacts

__all__ = ["Finding", "Problem", "preflight", "refusals"]


class Problem(StrEnum):
    """What may be wrong, by name."""

    NOT_LORA = "not-lora"
    FILE_NAME = "file-name"
    CONFIG = "config"
    RANK = "rank"
    DORA = "dora"
    BIAS = "bias"
    INIT = "init"
    MODULES_TO_SAVE = "modules-to-save"
    FEATURE = "feature"
    TENSOR_NAME = "tensor-name"
    TENSOR_SHAPE = "tensor-shape"
    NO_EFFECT = "no-effect"
    OTHER_BASE = "other-base"
    UNKNOWN_BASE = "unknown-base"
    TOKENIZER = "tokenizer"
    CHAT_TEMPLATE = "chat-template"
    NOT_CHECKED = "not-checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. A certain one refuses the adapter; an uncertain one is said, and the probe decides."""

    problem: Problem
    message: str
    certain: bool = True
    remedy: str = ""


_MERGE = "Merge it into its base ('podium run merge') and serve the merged model."
_PLAIN_LORA = "Train with peft's plain LoRA, or merge the adapter into its base and serve that."
# Inits that leave the base's weights as they are (peft_helper.py, `_init_is_supported`).
_PLAIN_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica", "lora_ga"})
_FEATURES = {
    "alora_invocation_tokens": "activated LoRA (aLoRA)",
    "layer_replication": "layer replication",
    "use_bdlora": "block-diagonal LoRA",
    "use_qalora": "QALoRA",
}
_PREFIX = "base_model.model."
_LORA = re.compile(r"(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B)(?:\.weight)?")
_SHOWN = 3


def preflight(adapter: AdapterFacts, base: BaseFacts, *, max_rank: int) -> tuple[Finding, ...]:
    """All that stands against serving ``adapter`` on ``base``, in the order of the rules above."""
    if str(adapter.config.get("peft_type", "")).upper() != "LORA":
        return (
            Finding(
                Problem.NOT_LORA,
                f"It is a {adapter.config.get('peft_type')!r} adapter; only LoRA can be served.",
                remedy=_MERGE,
            ),
        )
    found = (
        *_config_findings(adapter, max_rank),
        *_base_findings(adapter, base),
        *_vocabulary_findings(adapter, base),
        *_tensor_findings(adapter, base, max_rank),
    )
    return tuple(dict.fromkeys(found))  # a rank that is too high is found in each module


def refusals(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Those that are certain."""
    return tuple(finding for finding in findings if finding.certain)


def _config_findings(adapter: AdapterFacts, max_rank: int) -> Iterator[Finding]:
    config = adapter.config
    if ADAPTER_FILE not in adapter.files:
        yield Finding(
            Problem.FILE_NAME, f"It has no {ADAPTER_FILE}.", remedy="Save it with save_pretrained of peft."
        )
    missing = [key for key in ("r", "lora_alpha", "target_modules") if key not in config]
    if missing:
        yield Finding(
            Problem.CONFIG,
            f"adapter_config.json has no {', '.join(missing)}.",
            remedy="Save it with save_pretrained of peft.",
        )
    ranks = [rank for rank in (config.get("r"), *(config.get("rank_pattern") or {}).values()) if rank]
    highest = max((rank for rank in ranks if isinstance(rank, int)), default=0)
    if highest > max_rank:
        yield _rank_finding(highest, max_rank)
    if config.get("use_dora") or any("magnitude_vector" in name for name in adapter.tensors):
        yield Finding(Problem.DORA, "It is a DoRA adapter, which vLLM does not serve.", remedy=_MERGE)
    if config.get("lora_bias") or config.get("bias", "none") != "none":
        yield Finding(Problem.BIAS, "It trains biases, which vLLM does not serve.", remedy=_PLAIN_LORA)
    init = config.get("init_lora_weights", True)
    if isinstance(init, str) and init.lower() not in _PLAIN_INITS:
        yield Finding(
            Problem.INIT,
            f"Its init {init!r} changed the weights of its base, so it fits no other copy of it.",
            remedy="Save it with path_initial_model_for_weight_conversion of peft, or merge it.",
        )
    modules = [m for m in config.get("modules_to_save") or () if m not in ("classifier", "score")]
    if modules:
        yield Finding(
            Problem.MODULES_TO_SAVE,
            f"It replaces whole modules ({', '.join(map(str, modules))}), which vLLM does not serve.",
            remedy=_MERGE,
        )
    for key, words in _FEATURES.items():
        if config.get(key):
            yield Finding(Problem.FEATURE, f"It uses {words}, which vLLM does not serve.", remedy=_PLAIN_LORA)


def _rank_finding(rank: int, max_rank: int) -> Finding:
    return Finding(
        Problem.RANK,
        f"Its rank is {rank}, and this engine takes at most {max_rank}.",
        remedy=f"Deploy with VLLM(max_lora_rank={_next_rank(rank)}), or train with a lower rank.",
    )


def _next_rank(rank: int) -> int:
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), rank)


def _base_findings(adapter: AdapterFacts, base: BaseFacts) -> Iterator[Finding]:
    if adapter.trained_on is None:
        yield Finding(
            Problem.UNKNOWN_BASE,
            "Its lineage does not say on which base it was trained.",
            certain=False,
            remedy="Push it with --base.",
        )
    elif adapter.trained_on != base.digest:
        yield Finding(
            Problem.OTHER_BASE,
            f"It was trained on the base {adapter.trained_on[:19]}, and this deployment runs "
            f"{base.digest[:19]}.",
            remedy="Train it on the deployment's base, or move the base together with it.",
        )


def _vocabulary_findings(adapter: AdapterFacts, base: BaseFacts) -> Iterator[Finding]:
    mine, theirs = adapter.vocabulary, base.vocabulary
    if mine.tokenizer and theirs.tokenizer and mine.tokenizer != theirs.tokenizer:
        yield Finding(
            Problem.TOKENIZER,
            "Its tokenizer is not its base's, and vLLM would use the base's.",
            remedy=_MERGE,
        )
    if mine.chat_template and theirs.chat_template and mine.chat_template != theirs.chat_template:
        yield Finding(
            Problem.CHAT_TEMPLATE,
            "Its chat template is not its base's, and vLLM would use the base's.",
            remedy=_MERGE,
        )


def _tensor_findings(adapter: AdapterFacts, base: BaseFacts, max_rank: int) -> Iterator[Finding]:
    pairs, strangers = _pairs(adapter)
    if strangers:
        yield Finding(
            Problem.TENSOR_NAME,
            f"It has tensors that are not LoRA's: {_listed(strangers)}.",
            remedy=_PLAIN_LORA,
        )
    if not pairs and adapter.tensors:
        yield Finding(Problem.NO_EFFECT, "It has no LoRA tensors, so it would answer as its base.")
    unmatched: list[str] = []
    unchecked: list[str] = []
    for module, parts in sorted(pairs.items()):
        shape = _base_shape(module, base)
        if shape is None:
            (unchecked if _is_opaque(module, base) else unmatched).append(module)
            continue
        yield from _shape_findings(module, parts, shape, max_rank)
    if unmatched:
        yield Finding(
            Problem.TENSOR_NAME,
            f"{len(unmatched)} of its {len(pairs)} modules are not in the base ({_listed(unmatched)}), "
            "and would be left out in silence.",
            remedy="Check that it was trained on this architecture and saved with its full names.",
        )
    if unchecked:
        yield Finding(
            Problem.NOT_CHECKED,
            f"The base stores {_listed(unchecked)} in a form whose shape cannot be compared.",
            certain=False,
        )
    if adapter.all_zero:
        yield Finding(
            Problem.NO_EFFECT,
            "All its lora_B tensors are zero: it was never trained, and would answer as its base.",
            remedy="Train it.",
        )


def _pairs(adapter: AdapterFacts) -> tuple[dict[str, dict[str, tuple[int, ...]]], list[str]]:
    """Tensors by module and part (``lora_A``, ``lora_B``), and the names of those that are neither."""
    pairs: dict[str, dict[str, tuple[int, ...]]] = {}
    strangers = []
    for name, tensor in adapter.tensors.items():
        match = _LORA.fullmatch(name)
        if match is None:
            strangers.append(name)
        else:
            pairs.setdefault(match["module"], {})[match["part"]] = tensor.shape
    return pairs, strangers


def _base_shape(module: str, base: BaseFacts) -> tuple[int, ...] | None:
    """The shape (out, in) of the weight that a LoRA module adds to, None where the base has none."""
    if not module.startswith(_PREFIX):
        return None
    name = module.removeprefix(_PREFIX)
    if name == "lm_head" and base.tied_embeddings and "lm_head.weight" not in base.tensors:
        name = "model.embed_tokens"
    tensor = base.tensors.get(f"{name}.weight")
    return None if tensor is None or len(tensor.shape) != 2 else tensor.shape


def _is_opaque(module: str, base: BaseFacts) -> bool:
    """Whether the base has the module, but packed (quantised, fused experts) so that shapes differ."""
    name = module.removeprefix(_PREFIX)
    return module.startswith(_PREFIX) and any(
        other.startswith(f"{name}.") or (".experts" in name and name.split(".experts")[0] in other)
        for other in base.tensors
    )


def _shape_findings(
    module: str, parts: dict[str, tuple[int, ...]], shape: tuple[int, ...], max_rank: int
) -> Iterator[Finding]:
    embedding = "lora_embedding_A" in parts or "lora_embedding_B" in parts
    first, second = (parts.get(f"lora_{'embedding_' if embedding else ''}{letter}") for letter in ("A", "B"))
    out, into = (shape[1], shape[0]) if embedding else shape
    if first is None or second is None or len(first) != 2 or len(second) != 2:
        yield Finding(Problem.TENSOR_SHAPE, f"{module} has not both halves of a LoRA pair.")
        return
    rank = first[0]
    if first[1] != into or second[0] != out or second[1] != rank:
        yield Finding(
            Problem.TENSOR_SHAPE,
            f"{module} has LoRA shapes {list(first)} and {list(second)}; a weight of {list(shape)} in the "
            f"base needs [r, {into}] and [{out}, r].",
            remedy="Train it on this base.",
        )
    elif rank > max_rank:
        yield _rank_finding(rank, max_rank)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
