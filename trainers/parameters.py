"""A task's parameters: which are artifacts, which are plain values, and how text becomes either."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from registry.artifacts import Adapter, Artifact, Dataset, Model, Report
from registry.errors import InvalidInput
from registry.values import Role

_MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter that a caller may give."""

    name: str
    annotation: Any
    artifacts: tuple[type[Artifact], ...] = ()  # classes it takes; empty for a plain value
    role: Role = Role.PARENT
    default: Any = _MISSING
    limited: Any = None  # the annotation with the limits of its amounts, where it has any

    @property
    def required(self) -> bool:
        return self.default is _MISSING

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of content that it takes; empty for any."""
        kinds = {cls.kind for cls in self.artifacts}
        return frozenset() if "" in kinds else frozenset(kinds)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        return adapter_of(self.annotation if self.limited is None else self.limited)

    def describe(self) -> str:
        """As in ``--rank int = 16``."""
        what = " or ".join(cls.__name__ for cls in self.artifacts) or _name(self.annotation)
        default = "" if self.required else f" = {self.default}"
        return f"--{self.name.replace('_', '-')} {what}{default}"

    def read(self, given: Any) -> Any:
        """A plain value from text (as on a command line) or JSON.

        Raises:
            InvalidInput: it is not what the annotation says.
        """
        adapter = self.adapter
        try:
            return adapter.validate_python(given)
        except ValidationError as error:
            try:
                return adapter.validate_json(given) if isinstance(given, str) else _fail(error)
            except ValidationError:
                pass
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise InvalidInput(
                f"'{self.name}' cannot be {str(given)[:80]!r}: {reason}.",
                remedy=f"It takes {_name(self.annotation)}.",
            ) from error


def _fail(error: ValidationError) -> Any:
    raise error


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def parameters_of(
    function: Callable[..., Any], *, roles: Mapping[str, Role], provided: frozenset[str]
) -> dict[str, Parameter]:
    """The parameters of a task, without those that podium itself provides."""
    hints = typing.get_type_hints(function)
    limited = typing.get_type_hints(function, include_extras=True)
    judges = Report in _classes(hints.get("return"))
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in provided:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput(
                f"The task '{function.__name__}' has the parameter '{parameter}'.",
                remedy="Give each parameter of a task a name of its own.",
            )
        artifacts = _classes(hints.get(name))
        role = roles.get(name) or _default_role(artifacts, judges)
        found[name] = Parameter(
            name, hints.get(name, Any), artifacts, role, parameter.default, limited.get(name)
        )
    return found


def check_plain(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if a plain value (by parameter) is not what the function's annotation says."""
    for name, limited in typing.get_type_hints(function, include_extras=True).items():
        annotation = typing.get_type_hints(function)[name]
        if name in given and limited != annotation:
            Parameter(name, annotation, limited=limited).read(given[name])


def _default_role(artifacts: tuple[type[Artifact], ...], judges: bool) -> Role:
    """What an input is to the result, as far as its class tells."""
    if Dataset in artifacts:
        return Role.HELD_OUT if judges else Role.DATA
    if judges and Adapter in artifacts:
        return Role.SUBJECT
    return Role.BASE if Model in artifacts else Role.PARENT


def result_classes(function: Callable[..., Any]) -> tuple[type[Artifact], ...]:
    """The artifacts that a task says it returns."""
    return _classes(typing.get_type_hints(function).get("return"))


def _classes(annotation: Any) -> tuple[type[Artifact], ...]:
    """The artifact classes in an annotation such as ``Adapter | Model | str | None``."""
    if isinstance(annotation, type) and issubclass(annotation, Artifact):
        return (annotation,)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return tuple(cls for part in typing.get_args(annotation) for cls in _classes(part))
    return ()


def options_to_mapping(words: list[str]) -> dict[str, str]:
    """``--name value`` and ``--name=value`` as they stand on a command line; ``--flag`` alone is true.

    Raises:
        InvalidInput: a word belongs to no option, or one is given twice.
    """
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise InvalidInput(f"'{word}' belongs to no option.", remedy="Write arguments as --name value.")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        name = name.replace("-", "_")
        if name in given:
            raise InvalidInput(f"'--{name}' is given twice.", remedy="Give it once.")
        given[name] = value
    return given


_PLAIN = (bool, int, str, type(None))  # what is JSON already


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """What turns JSON into a type and back; costly to make, so it is kept."""
    try:
        return _kept_adapter(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return TypeAdapter(annotation)


@lru_cache(256)
def _kept_adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def to_plain(value: Any, annotation: Any) -> Any:
    """A value as plain JSON, as the journal keeps it.

    Raises:
        InvalidInput: it cannot be written as JSON.
    """
    if type(value) in _PLAIN and annotation is type(value):
        return value
    try:
        return json.loads(adapter_of(annotation).dump_json(value))
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"A value of type {type(value).__name__} cannot be recorded.",
            remedy="Give tasks plain values: numbers, text, lists, mappings, or pydantic models.",
        ) from error
