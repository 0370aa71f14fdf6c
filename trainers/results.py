"""What steps return, as their driver gets it: artifacts, fetched when they are touched, and plain values."""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.artifacts import Artifact, StoredContent
from registry.protocol import Registry
from registry.runs import RESULT, Run, RunOutput
from trainers.binding import OUTPUT, artifact
from trainers.parameters import adapter_of


def revive(run: Run, annotation: Any, registry: Registry, folder: Path) -> Any:
    """What a run that succeeded returned, of the type ``annotation``. Files are fetched to ``folder``."""
    outputs = {output.name: _artifact(output, registry, folder) for output in run.outputs}
    if run.result is None and RESULT in outputs:
        return outputs[RESULT]
    if not outputs:
        return adapter_of(annotation).validate_python(run.result)
    filled = fill(run.result, outputs)
    return tuple(filled) if _is_tuple(annotation) else filled


def _artifact(output: RunOutput, registry: Registry, folder: Path) -> Artifact:
    content = StoredContent(output.value, output.kind, output.digest, output.ref)
    return artifact(content, registry, folder / output.value)


def fill(template: Any, outputs: Mapping[str, Any]) -> Any:
    """A result that was recorded, with ``outputs`` in the places where it holds them."""
    if isinstance(template, Mapping):
        if template.keys() == {OUTPUT}:
            return outputs[template[OUTPUT]]
        return {name: fill(value, outputs) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, outputs) for value in template]
    return template


def _is_tuple(annotation: Any) -> bool:
    return annotation is tuple or typing.get_origin(annotation) is tuple


def signature_of(task: str, arguments: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The digest of a task and what it is given: plain ``arguments``, and ``inputs`` as their digests."""
    said = json.dumps([task, dict(arguments), dict(inputs)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()
