"""Names, aliases and references: the grammar in which people and programs name versions.

name            [a-z0-9][a-z0-9._-]{0,99}
alias           [a-z][a-z0-9-]{0,62}, but never `latest` and never `v` with digits
reference       name | name:v7 | name:alias | name@sha256:<64 hex digits>
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from registry.errors import InvalidReference

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VERSION = re.compile(r"v([1-9][0-9]{0,8})")
_LIKE_A_VERSION = re.compile(r"v[0-9]+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SHOWN = 80


def _shown(text: str) -> str:
    """``text`` as it may stand in a message: printable and not endless."""
    printable = ascii(text)[1:-1]
    return printable if len(printable) <= _SHOWN else printable[:_SHOWN] + "..."


def check_name(text: str) -> str:
    """``text`` if it may name an artifact, else `InvalidReference`."""
    if not _NAME.fullmatch(text) or ".." in text:
        raise InvalidReference(
            f"'{_shown(text)}' cannot name an artifact.",
            remedy="Use 1 to 100 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, "
            "without '..'.",
        )
    return text


def check_alias(text: str) -> str:
    """``text`` if it may be an alias, else `InvalidReference`."""
    if text == "latest" or _LIKE_A_VERSION.fullmatch(text):
        raise InvalidReference(
            f"'{_shown(text)}' cannot be an alias: it would read as a version.",
            remedy="Choose a word such as 'candidate' or 'production'.",
        )
    if not _ALIAS.fullmatch(text):
        raise InvalidReference(
            f"'{_shown(text)}' cannot be an alias.",
            remedy="Use 1 to 63 of a-z, 0-9 and '-', beginning with a letter.",
        )
    return text


def parse_version_number(text: str) -> int:
    """The number in ``v7``, else `InvalidReference`."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise InvalidReference(f"'{_shown(text)}' is not a version.", remedy="Versions are v1, v2, v3 ...")
    return int(match[1])


def is_reference(text: str) -> bool:
    """Whether ``text`` names a version, where it may also be the id of a value that has no name."""
    return ":" in text or "@" in text


@dataclass(frozen=True, slots=True)
class Reference:
    """What a person wrote to name a version. At most one of the last three is set."""

    name: str
    version: int | None = None
    alias: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference.

        Raises:
            InvalidReference: ``text`` breaks the grammar.
        """
        name, at, digest = text.partition("@")
        if at:
            if not _DIGEST.fullmatch(digest):
                raise InvalidReference(
                    f"'{_shown(digest)}' is not a digest.", remedy="Write NAME@sha256: and 64 hex digits."
                )
            return cls(check_name(name), digest=digest)
        name, colon, selector = text.partition(":")
        check_name(name)
        if not colon:
            return cls(name)
        if _LIKE_A_VERSION.fullmatch(selector):
            return cls(name, version=parse_version_number(selector))
        if selector == "latest":
            raise InvalidReference(
                f"'{name}:latest' names nothing: podium has no moving 'latest'.",
                remedy=f"Write '{name}' for the newest version, or a version or alias of it.",
            )
        return cls(name, alias=check_alias(selector))

    @property
    def is_bare(self) -> bool:
        """Whether it names the artifact only, which reads as its newest version."""
        return self.version is None and self.alias is None and self.digest is None

    def require_explicit(self, verb: str) -> Reference:
        """Itself, unless it is bare: what changes something must say which version it means."""
        if self.is_bare:
            raise InvalidReference(
                f"'{self.name}' does not say which version to {verb}.",
                remedy=f"Write {self.name}:v1, {self.name}:ALIAS or {self.name}@sha256:...",
            )
        return self

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.name}:v{self.version}"
        if self.alias is not None:
            return f"{self.name}:{self.alias}"
        return f"{self.name}@{self.digest}" if self.digest else self.name
