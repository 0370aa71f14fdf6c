"""Text from anywhere, as it can be kept."""

from __future__ import annotations

_LOST = "\N{REPLACEMENT CHARACTER}"


def is_storable(text: str) -> bool:
    """Whether a database and an event take it. Half a character (of a file's name), or NUL, they do not."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def storable(text: str) -> str:
    """``text``, with another character in the place of those that cannot be kept.

    For what a program said, such as an error: it must never be the reason that its end is not recorded.
    """
    return text if is_storable(text) else "".join(c if is_storable(c) else _LOST for c in text)
