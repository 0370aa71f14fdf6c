"""What preflight needs to know of an adapter and of a base model, read from their files without torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from registry.content.safetensors import Header, Tensor, read_header
from registry.errors import InvalidContent

__all__ = ["ADAPTER_FILE", "AdapterFacts", "BaseFacts", "Vocabulary", "adapter_facts", "base_facts"]

ADAPTER_FILE = "adapter_model.safetensors"  # the only name under which vLLM looks
# What training leaves in tokenizer.json without meaning: how that run cut and padded its batches.
_SESSION_FIELDS = ("truncation", "padding", "version")
# TRL marks the assistant's part of a template for its loss mask; the text that comes out is the same.
_GENERATION_MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Digests of how text becomes tokens; None where the folder does not say."""

    tokenizer: str | None = None
    chat_template: str | None = None


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """An adapter as its files describe it."""

    digest: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    files: tuple[str, ...]
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    trained_on: str | None = None  # digest of the base in its lineage; None when nobody recorded it
    all_zero: bool = False  # every lora_B is zero, so it changes nothing


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """A base model as its files describe it."""

    digest: str
    tensors: Mapping[str, Tensor]
    tied_embeddings: bool = False
    vocabulary: Vocabulary = field(default_factory=Vocabulary)


def adapter_facts(folder: Path, *, digest: str, trained_on: str | None) -> AdapterFacts:
    """Read an adapter's folder.

    Raises:
        InvalidContent: its configuration is not JSON, or a header is not sound.
    """
    file = folder / ADAPTER_FILE
    tensors = read_header(file).tensors if file.is_file() else {}
    return AdapterFacts(
        digest=digest,
        config=_json(folder / "adapter_config.json"),
        tensors=tensors,
        files=tuple(sorted(path.name for path in folder.iterdir())),
        vocabulary=_vocabulary(folder),
        trained_on=trained_on,
        all_zero=_all_zero(file, tensors) if tensors else False,
    )


def base_facts(folder: Path, *, digest: str) -> BaseFacts:
    """Read a base model's folder; raises `InvalidContent`."""
    headers: list[Header] = [read_header(path) for path in sorted(folder.glob("*.safetensors"))]
    return BaseFacts(
        digest=digest,
        tensors={name: tensor for header in headers for name, tensor in header.tensors.items()},
        tied_embeddings=bool(_json(folder / "config.json").get("tie_word_embeddings")),
        vocabulary=_vocabulary(folder),
    )


def _vocabulary(folder: Path) -> Vocabulary:
    return Vocabulary(_tokenizer_digest(folder / "tokenizer.json"), _template_digest(folder))


def _tokenizer_digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    content = {key: value for key, value in _json(path).items() if key not in _SESSION_FIELDS}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _template_digest(folder: Path) -> str | None:
    alone = folder / "chat_template.jinja"
    config = folder / "tokenizer_config.json"
    template: object = None
    if alone.is_file():
        template = alone.read_text()
    elif config.is_file():
        template = _json(config).get("chat_template")
    if not isinstance(template, str):
        return None
    return hashlib.sha256(_GENERATION_MARKS.sub("", template).strip().encode()).hexdigest()


def _all_zero(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    """Whether every ``lora_B`` holds zeros only. A trained adapter is told at its first bytes."""
    seconds = [tensor for name, tensor in tensors.items() if ".lora_B" in name or "embedding_B" in name]
    with path.open("rb") as file:
        return bool(seconds) and all(_is_zero(file, tensor) for tensor in seconds)


def _is_zero(file: Any, tensor: Tensor) -> bool:
    file.seek(tensor.begin)
    left = tensor.size
    while left > 0:
        part = file.read(min(left, _READ_BYTES))
        if not part or part.count(0) != len(part):
            return False
        left -= len(part)
    return True


def _json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidContent(
            f"{path.name} cannot be read as JSON: {error}", remedy="Save the model again.", path=path.name
        ) from error
    if not isinstance(raw, dict):
        raise InvalidContent(f"{path.name} is not a JSON object.", remedy="Save the model again.")
    return raw
