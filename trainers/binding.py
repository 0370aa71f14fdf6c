"""From what the journal says to a call of the task's function, and from what it returns to the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.errors import PydanticUserError

from registry.artifacts import Adapter, Artifact, Checkpoint, Dataset, Dir, File, Model, Report, StoredContent
from registry.capture.secrets import holds_hidden
from registry.errors import InvalidContent
from registry.protocol import Registry
from registry.runs import RESULT, NewOutput, Run
from registry.values import Role
from trainers.errors import InvalidResult
from trainers.parameters import adapter_of, to_plain
from trainers.patience import insist
from trainers.tasks import Task

#: In a result that holds artifacts among other things, an object with this one name stands for an output.
OUTPUT = "$output"
#: Most bytes of a file that is searched for secrets.
_LARGEST_TEXT = 16 * 2**20
_CLASSES = {cls.kind: cls for cls in (Adapter, Checkpoint, Dataset, Dir, File, Model, Report)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task returned: artifacts that are stored now, or a plain value."""

    outputs: tuple[NewOutput, ...] = ()
    result: Any = None


def bind(task: Task[..., Any], run: Run, registry: Registry, folder: Path) -> dict[str, Any]:
    """The arguments of the call. Inputs are fetched into ``folder``, each when the task first touches it.

    Raises:
        InvalidInput, KindMismatch: what the run was asked with does not fit the task.
    """
    inputs = {each.parameter: each for each in run.inputs}
    # A task that was queued by name alone (by a trigger) has not been checked against its parameters yet.
    task.request({**run.arguments, **{name: each.value for name, each in inputs.items()}})
    task.check_kinds({name: each.kind for name, each in inputs.items()})
    bound: dict[str, Any] = {name: task.parameters[name].read(value) for name, value in run.arguments.items()}
    for name, each in inputs.items():
        content = StoredContent(each.value, each.kind, each.digest, each.ref)
        bound[name] = artifact(content, registry, folder / name)
    bound.update(_base_of_subject(task, run, registry, folder))
    return bound


def artifact(content: StoredContent, registry: Registry, destination: Path) -> Artifact:
    """Something in the registry, to be fetched to ``destination`` when it is touched."""

    def fetch() -> Path:
        insist(lambda: registry.catalog.materialise(content.digest, destination))
        return destination

    def publish(name: str) -> str:
        return insist(lambda: registry.catalog.name(name, content.value)).version.ref

    return _CLASSES.get(content.kind, Artifact).stored(content, fetch, publish)


def _base_of_subject(
    task: Task[..., Any], run: Run, registry: Registry, folder: Path
) -> Iterator[tuple[str, Artifact]]:
    """A base that a task can use, and was not given, is that of what it judges."""
    given = {each.parameter for each in run.inputs}
    subjects = [each for each in run.inputs if each.parameter in task.subjects]
    for name in task.optional_bases - given:
        base = base_of(registry, subjects[0].value) if subjects else None
        if base is not None:
            yield name, artifact(base, registry, folder / name)


def base_of(registry: Registry, reference: str) -> StoredContent | None:
    """The base that a version or value was made from; None where its lineage names none."""
    graph = registry.lineage.walk(reference, up=True, depth=1)
    bases = {edge.parent for edge in graph.edges if edge.child == graph.root and edge.role is Role.BASE}
    for node in graph.nodes:
        if node.value in bases:
            return StoredContent(node.value, node.kind, node.digest, node.refs[0] if node.refs else None)
    return None


def store_result(
    task: Task[..., Any], returned: Any, registry: Registry, say: Callable[[str], None]
) -> Outcome:
    """Store what a task returned. It becomes visible when the run is finished with it.

    Raises:
        InvalidResult: it is not what the task says it returns.
        InvalidContent: files are not what their kind requires.
    """
    artifacts = dict(_artifacts(returned))
    wanted = task.results
    for made in artifacts.values():
        if wanted and not isinstance(made, wanted):
            names = " or ".join(cls.__name__ for cls in wanted)
            raise InvalidResult(
                f"'{task.name}' returned {made!r}, and says that it returns {names}.",
                remedy="Correct the task's annotation, or what it returns.",
            )
    if wanted and not artifacts:
        raise InvalidResult(
            f"'{task.name}' says it returns {wanted[0].__name__}, and returned {type(returned).__name__}.",
            remedy=f"Return {wanted[0].__name__}(path).",
        )
    if not artifacts:
        return Outcome(result=to_plain(_checked(task, returned), Any))
    outputs = tuple(_store(name, made, registry, say) for name, made in artifacts.items())
    return Outcome(outputs, _template(returned))


def _checked(task: Task[..., Any], returned: Any) -> Any:
    """Plain values as the task's annotation has them."""
    try:
        expected = adapter_of(task.annotation)
    except (NameError, PydanticUserError):  # names for type checkers only, or classes of the user's own
        return returned
    try:
        return expected.validate_python(returned)
    except ValidationError as error:
        raise InvalidResult(
            f"'{task.name}' returned {type(returned).__name__}, which is not what it says it returns: "
            f"{error.errors()[0]['msg']}.",
            remedy="Correct the task's annotation, or what it returns.",
        ) from error


def _template(returned: Any) -> Any:
    """A result that holds artifacts, as plain JSON with the names of outputs in their places."""
    if isinstance(returned, Artifact):
        return None
    if isinstance(returned, Mapping):
        return {str(name): _plain_or_output(str(name), each) for name, each in returned.items()}
    return [_plain_or_output(str(index), each) for index, each in enumerate(returned)]


def _plain_or_output(name: str, each: Any) -> Any:
    return {OUTPUT: name} if isinstance(each, Artifact) else to_plain(each, Any)


def _artifacts(returned: Any) -> Iterator[tuple[str, Artifact]]:
    """The artifacts in a result, by name: one, a tuple or list of them, or a mapping."""
    if isinstance(returned, Artifact):
        yield RESULT, returned
    elif isinstance(returned, Mapping):
        yield from ((str(k), v) for k, v in returned.items() if isinstance(v, Artifact))
    elif isinstance(returned, tuple | list):
        yield from ((str(i), v) for i, v in enumerate(returned) if isinstance(v, Artifact))


def _store(name: str, made: Artifact, registry: Registry, say: Callable[[str], None]) -> NewOutput:
    if made.content is not None:  # handed on, such as what a step made: that is where it came from
        return NewOutput(name, made.content.kind, made.content.digest, value=made.content.value)
    if not made.kind:
        raise InvalidResult(
            f"{made!r} does not say what it is.",
            remedy="Return Adapter(path), Model(path), Dataset(path) ...",
        )
    path, kind = made.path, made.kind
    _refuse_secrets(path)
    stored = insist(lambda: registry.catalog.store(path, kind))
    for notice in stored.notices:
        say(notice)
    return NewOutput(name, stored.kind, stored.digest, made.parents, made.metadata)


def _refuse_secrets(path: Path) -> None:
    """Raise `InvalidContent` if a file has a secret in it that the task was given.

    What is stored is kept for good and read by many. Weights are not looked through, nor what is too large to
    be a text.
    """
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    for file in files:
        text = file.suffix != ".safetensors" and file.stat().st_size <= _LARGEST_TEXT
        if text and holds_hidden(file.read_bytes()):
            name = file.relative_to(path).as_posix() if file != path else file.name
            raise InvalidContent(
                f"'{name}' has a secret in it that the task was given, and would be kept for good.",
                remedy="Write it without: the secret is in the task's environment wherever it runs.",
            )
