"""Prompt-completion data: the lines of ``train.jsonl`` and ``heldout.jsonl`` in a dataset folder.

A line is a JSON object with ``prompt`` and ``completion``: both texts, or both lists of chat messages
(``{"role": ..., "content": ...}``). Texts are turned into one message each, so that what is trained and
judged is rendered exactly as a server renders a chat.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import InvalidContent

Message = dict[str, str]

#: What the lines of a dataset look like, for error messages.
EXPECTED = 'Each line is {"prompt": ..., "completion": ...}, both texts or both lists of chat messages.'


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and the completion that is wanted."""

    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]

    @property
    def id(self) -> str:
        """Sixteen hex digits of the content's hash: the same example has the same id in each version of a
        dataset.
        """
        content = json.dumps([self.prompt, self.completion], ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def plain_prompt(self) -> str:
        """The prompt as text, for models without a chat template."""
        return "\n".join(message["content"] for message in self.prompt)

    @property
    def question(self) -> str:
        """The last thing said before the completion."""
        return self.prompt[-1]["content"]

    @property
    def expected(self) -> str:
        """The completion as text."""
        return "\n".join(message["content"] for message in self.completion)


def read_examples(data: str | os.PathLike[str], split: str) -> list[Example]:
    """The examples of one split of a dataset folder, in their order.

    Raises ``InvalidContent``, naming the file and line, when there are none or a line is not an example.
    """
    file = Path(data) / f"{split}.jsonl"
    if not file.is_file():
        raise InvalidContent(f"The dataset has no {file.name}.", remedy=f"Add {split}.jsonl. {EXPECTED}")
    lines = file.read_text(encoding="utf-8").splitlines()
    examples = [_parse(line, f"{file.name}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not examples:
        raise InvalidContent(f"{file.name} is empty.", remedy=EXPECTED)
    return examples


def _parse(line: str, place: str) -> Example:
    try:
        row = json.loads(line)
        return Example(_messages(row["prompt"], "user"), _messages(row["completion"], "assistant"))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidContent(f"{place} is not a prompt-completion example.", remedy=EXPECTED) from error


def _messages(said: Any, role: str) -> tuple[Message, ...]:
    if isinstance(said, str):
        return ({"role": role, "content": said},)
    messages = tuple({"role": str(message["role"]), "content": message["content"]} for message in said)
    if not messages or not all(isinstance(message["content"], str) for message in messages):
        raise ValueError("no messages, or a message that is no text")
    return messages
