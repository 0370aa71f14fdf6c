"""Errors speak in sentences, whatever room they are of: read from the source, so that none is left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from registry.errors import PodiumError

ROOT = Path(__file__).parents[2]
ROOMS = ("registry", "triggers", "trainers", "serving")
# The name of a file or of the command may begin a sentence.
NAMES = ("podium", "examples.jsonl", "report.json", "store.json")

Text = ast.Constant | ast.JoinedStr


def errors_named() -> set[str]:
    """The names of all classes of errors; rooms are imported, so that all are known."""
    for module in ("registry.errors", "triggers.errors", "trainers.errors", "serving.errors"):
        import_module(module)
    found, open_ = {PodiumError}, [PodiumError]
    while open_:
        for each in open_.pop().__subclasses__():
            found.add(each)
            open_.append(each)
    return {each.__name__ for each in found}


def messages(room: str) -> Iterator[tuple[str, Text]]:
    """Where an error is made, and its message as it stands in the source."""
    names = errors_named()
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            message = node.args[0]
            if name in names and isinstance(message, ast.Constant | ast.JoinedStr):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", message


def ends(message: Text) -> tuple[str, str]:
    """The words with which a message begins and ends; empty where a value stands there."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    said = [str(part.value) if isinstance(part, ast.Constant) else "" for part in parts]
    return said[0], said[-1]


@pytest.mark.parametrize("room", ROOMS)
def test_a_message_begins_with_a_capital_and_ends_as_a_sentence(room: str) -> None:
    found = list(messages(room))
    assert len(found) > 10
    for where, message in found:
        first, last = ends(message)
        said = f"{where}: {ast.unparse(message)}"
        begins_with_version = first == "v" and isinstance(message, ast.JoinedStr)
        assert not first[:1].islower() or first.startswith(NAMES) or begins_with_version, said
        assert not last or last[-1] in ".?!", said
