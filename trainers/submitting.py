"""The door to a run: from what a person names to a request with all of it checked and resolved."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from registry.apps.loading import load_file
from registry.capture import describe_source, make_bundle
from registry.capture.secrets import find_secret, is_secret_name
from registry.errors import ArtifactNotFound, InvalidInput, KindMismatch
from registry.protocol import Registry
from registry.references import check_name
from registry.runs import RunRequest
from trainers.binding import base_of
from trainers.catalogue import recipe
from trainers.locating import split, task_in
from trainers.tasks import Task


@dataclass(frozen=True, slots=True)
class Located:
    """A task with the code that has it, stored where workers find it."""

    task: Task[..., Any]
    name: str  # as the journal has it: "sft", "examples/train.py:train"
    code: str | None = None  # digest of its bundle
    file: Path | None = None  # the user's file that has it
    root: Path | None = None  # its project's folder
    source: Mapping[str, Any] | None = None  # commit, diff ...
    notices: tuple[str, ...] = ()


def locate(registry: Registry, target: str) -> Located:
    """The task that ``NAME`` or ``FILE:TASK`` names. A file is bundled with what it imports, and stored.

    Raises:
        TaskNotFound: there is no such recipe, file or task.
        InvalidApp: the file cannot be imported.
        InvalidInput: the code may not travel, because it is too large or has a secret in it.
    """
    located = split(target)
    if located is None:
        return Located(recipe(target), target)
    loaded = load_file(Path(located[0]))
    task = task_in(loaded.module, loaded.path.name, located[1])
    with tempfile.TemporaryDirectory(prefix="podium-bundle-") as scratch:
        bundle = make_bundle(loaded.path, Path(scratch) / "bundle", root=loaded.root)
        stored = registry.catalog.store(bundle.folder, "bundle")
    name = f"{bundle.entry}:{located[1]}"
    return Located(
        task, name, stored.digest, loaded.path, loaded.root, describe_source(loaded.root), bundle.notices
    )


def prepare(
    registry: Registry, located: Located, arguments: Mapping[str, Any], *, publish: str | None = None
) -> RunRequest:
    """A checked request: names and types of arguments, kinds of inputs, the name to publish under.

    Raises:
        InvalidInput, KindMismatch, NotFound: what is wrong, before anything is queued.
    """
    for name, given in arguments.items():
        _refuse_secret(name, given)
    task = located.task
    request = replace(task.request(arguments), task=located.name, code=located.code)
    request = replace(request, inputs={**request.inputs, **_missing_base(registry, task, request)})
    request = replace(request, roles={name: task.parameters[name].role for name in request.inputs})
    nodes = {name: registry.lineage.walk(ref, depth=0).nodes[0] for name, ref in request.inputs.items()}
    task.check_kinds({name: node.kind for name, node in nodes.items()})
    publish = publish or task.publish
    if publish is not None:
        _check_publish(registry, task, publish)
    captured: dict[str, Any] = {"source": dict(located.source)} if located.source else {}
    if located.file is not None:
        captured["file"] = str(located.file)
    return replace(request, publish=publish, captured=captured)


def _missing_base(registry: Registry, task: Task[..., Any], request: RunRequest) -> dict[str, str]:
    """A base that is not named is that of what is judged, so that the journal says which it was."""
    for name in task.optional_bases - request.inputs.keys():
        for subject in task.subjects & request.inputs.keys():
            base = base_of(registry, request.inputs[subject])
            if base is not None:
                return {name: base.value}
    return {}


def _refuse_secret(name: str, given: Any) -> None:
    if is_secret_name(name) or find_secret(str(given)) is not None:
        raise InvalidInput(
            f"'--{name}' looks like a secret, and arguments are kept for good.",
            remedy="Let the task read it from the environment.",
        )


def _check_publish(registry: Registry, task: Task[..., Any], name: str) -> None:
    check_name(name)
    kinds = {cls.kind for cls in task.results}
    if not kinds:
        raise InvalidInput(
            f"'{task.name}' says of no artifact that it returns it, so there is nothing to publish.",
            remedy="Annotate what it returns, such as '-> Adapter'.",
        )
    try:
        existing = registry.catalog.resolve(name).kind
    except ArtifactNotFound:
        return
    if "" not in kinds and existing not in kinds:
        raise KindMismatch(
            f"'{name}' holds {existing}s, and '{task.name}' makes {' or '.join(sorted(kinds))}.",
            remedy="Publish under another name.",
        )
