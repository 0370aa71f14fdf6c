"""Secrets of tasks: found where the run is carried out, given to its process, and masked in what it says.

A task's environment names them; only names are recorded:

    HF_TOKEN                        the worker's environment variable of that name
    HF_TOKEN=file:/run/secrets/hf   what the file holds, without the line end
    HF_TOKEN=vault:ml/hf            what a provider gives for ``ml/hf``: a function from text to text that is
                                    named ``vault`` in the entry-point group ``podium.secrets``

What the run prints, its error and its plain result are masked before they are stored. A file of its result
that has a secret in it is refused: content is what its digest says, so nothing in it could be masked.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

from registry.capture.secrets import REMOVED, find_secret, is_secret_name
from registry.errors import InvalidInput, PodiumError
from trainers.errors import ImagePullBackOffError

PROVIDERS = "podium.secrets"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SPECIFICATION = re.compile(rf"(?P<name>{_NAME.pattern})(?:=(?P<source>[a-z][a-z0-9_-]*):(?P<key>.+))?")


def check_secrets(specifications: Iterable[str]) -> tuple[str, ...]:
    """The specifications, if all of them are some.

    Raises:
        InvalidInput: one is not. It is not repeated in the message: it may be the secret itself.
    """
    checked = tuple(specifications)
    for number, each in enumerate(checked, start=1):
        if _SPECIFICATION.fullmatch(each) is None:
            raise InvalidInput(
                f"The secret number {number} does not say where it is to be had.",
                remedy="Write NAME, NAME=file:PATH or NAME=PROVIDER:KEY, never the value.",
            )
    return checked


def check_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Variables for the environment of a task's process, if all can be recorded and given to it.

    Raises:
        InvalidInput: one has no name that can be used, is podium's own, is no text, or looks like a secret.
    """
    for name, value in env.items():
        if not isinstance(value, str) or "\0" in value or _NAME.fullmatch(name) is None:
            raise InvalidInput(f"'{name}' in env= is no variable.", remedy="Give names and values as text.")
        if name.startswith("PODIUM_"):
            raise InvalidInput(
                f"'{name}' in env= is podium's own.", remedy="Set it where the worker is started."
            )
        if is_secret_name(name) or find_secret(value) is not None:
            raise InvalidInput(
                f"'{name}' in env= looks like a secret, and is kept for good.",
                remedy=f"Name it in secrets=, such as secrets=('{name}',); its value stays with the worker.",
            )
    return dict(env)


def secret_names(specifications: Iterable[str]) -> list[str]:
    """The names under which a task finds its secrets in its environment."""
    return [each.partition("=")[0] for each in specifications]


def find_secrets(specifications: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The value of each secret, by the name under which its task finds it in its environment.

    Raises:
        ImagePullBackOffError: one cannot be had here.
    """
    found = {}
    for specification in specifications:
        match = _SPECIFICATION.fullmatch(specification)
        assert match is not None, "checked when the task was made"
        found[match["name"]] = _find(match["name"], match["source"], match["key"], environment)
    return found


def _find(name: str, source: str | None, key: str | None, environment: Mapping[str, str]) -> str:
    try:
        value = environment.get(name) if source is None else _ask(source, str(key))
    except PodiumError:
        raise
    except Exception as error:  # what a provider raises may have the secret, or its own, in the text
        raise _missing(name, f"{source}:{key} gave {type(error).__name__}") from None
    if not value:
        raise _missing(name, "it is empty or not there" if source else "the worker's environment has none")
    return value


def _ask(source: str, key: str) -> str:
    if source == "file":
        return Path(key).expanduser().read_text().rstrip("\r\n")
    providers = entry_points(group=PROVIDERS, name=source)
    if not providers:
        raise ImagePullBackOffError(
            f"No provider of secrets is named '{source}' here.",
            remedy=f"Install one: a function under that name in the entry-point group {PROVIDERS}.",
        )
    (provider, *_) = providers
    value: str = provider.load()(key)
    return value


def _missing(name: str, why: str) -> ImagePullBackOffError:
    return ImagePullBackOffError(
        f"The secret {name} cannot be had: {why}.",
        remedy="Put it where the task says, on the machine of the worker.",
        secret=name,
    )


class Mask:
    """Takes secrets out of text, and out of a stream of bytes that comes in pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value)}
        ordered = sorted(forms, key=len, reverse=True)
        self._text = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._bytes = [form.encode() for form in ordered]
        self._pattern = re.compile(b"|".join(map(re.escape, self._bytes))) if ordered else None
        self._held = b""

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._text.sub(REMOVED, text) if self._text else text

    def value(self, value: Any) -> Any:
        """Plain JSON without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def feed(self, data: bytes) -> bytes:
        """What of the stream can be shown now; what may be the beginning of a secret is held back."""
        if self._pattern is None:
            return data
        data = self._held + data
        end = len(data) - self._beginning(data)
        for match in self._pattern.finditer(data):
            if match.start() < end < match.end():
                end = match.start()
        self._held = data[end:]
        return self._pattern.sub(REMOVED.encode(), data[:end])

    def _beginning(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a secret."""
        longest = min(len(data), max(map(len, self._bytes)) - 1)
        tail = data[len(data) - longest :]
        for start in range(len(tail)):
            if any(form.startswith(tail[start:]) for form in self._bytes):
                return len(tail) - start
        return 0

    def close(self) -> bytes:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, b""
        return self._pattern.sub(REMOVED.encode(), held) if self._pattern else held


def _forms(value: str) -> Iterable[str]:
    """A secret as programs print it: as it is, line by line, quoted, in a URL, and in base64."""
    yield value
    yield repr(value)[1:-1]
    yield quote(value, safe="")
    yield base64.b64encode(value.encode()).decode().rstrip("=")
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 8)
