"""A task's parameters in words: what `podium run TASK --help` shows of them."""

from __future__ import annotations

import inspect
import re
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from trainers.parameters import Parameter
from trainers.tasks import Task

_SENTENCE_ENDS = re.compile(r"(?<=\.)\s+(?=[A-Z`])")
# "name: what it is", under "Args:" or not
_ENTRY = re.compile(r"^\s*\*{0,2}(\w+)\*{0,2}(?: \([^)]*\))?: +(\S.*)$")


@dataclass(frozen=True, slots=True)
class Described:
    """One parameter for a person: ``--rank int``, what its docstring says of it, its default."""

    option: str
    about: str

    @classmethod
    def of(cls, parameter: Parameter, said: str) -> Described:
        default = "required" if parameter.required else f"default: {_shown(parameter.default)}"
        option = f"--{parameter.name.replace('_', '-')} {type_name(parameter)}"
        return cls(option, f"{said}  [{default}]".strip())


def summary(task: Task[..., Any]) -> str:
    """The first paragraph of a task's docstring, on one line."""
    return _plain(" ".join(_paragraphs(task)[:1]))


def described(task: Task[..., Any]) -> list[Described]:
    """A task's parameters in their order."""
    return [Described.of(each, _said_of(task, each.name)) for each in task.parameters.values()]


def type_name(parameter: Parameter) -> str:
    """What a parameter takes, short: ``Adapter|Model``, ``int``, ``lora|qlora|full``."""
    artifacts = [cls.__name__ for cls in parameter.artifacts]
    return "|".join(artifacts) if artifacts else _type(parameter.annotation)


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "|".join(str(each) for each in arguments)
    if origin in (typing.Union, types.UnionType):
        return "|".join(_type(each) for each in arguments if each is not type(None))
    if isinstance(annotation, type) and origin is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _shown(default: Any) -> str:
    return "none" if default is None else "''" if default == "" else str(default)


def _said_of(task: Task[..., Any], name: str) -> str:
    """What the docstring says of a parameter: its line ``name: ...``, or else the sentence about it."""
    for line in (inspect.getdoc(task.function) or "").splitlines():
        entry = _ENTRY.match(line)
        if entry and entry[1] == name:
            return _plain(entry[2])
    mention = re.compile(rf"``{name}(``|=)")
    sentences = [each for paragraph in _paragraphs(task) for each in _SENTENCE_ENDS.split(paragraph)]
    # The first sentence says what the task does, and is shown above.
    about = [each for each in sentences[1:] if mention.search(each) and not each.startswith("Raises")]
    about.sort(key=lambda sentence: mention.match(sentence) is None)  # those that begin with it say most
    return _plain(about[0]) if about else ""


def _paragraphs(task: Task[..., Any]) -> list[str]:
    """The docstring's paragraphs, each on one line, without blocks of code."""
    text = inspect.getdoc(task.function) or ""
    parts = [part for part in re.split(r"\n\s*\n", text) if part and not part.startswith((" ", "\t"))]
    return [" ".join(part.split()) for part in parts]


def _plain(sentence: str) -> str:
    return sentence.replace("``", "").strip()
