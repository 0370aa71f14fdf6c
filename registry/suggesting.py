"""What somebody may have meant who mistyped a name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.6  # share of a word that is right, as difflib counts it
_MOST = 3  # more would be a list to read and not a hint
_LONGEST = 200  # characters; nobody types more by a slip, and comparing takes their square


def close_to(word: str, known: Iterable[str]) -> list[str]:
    """Those of ``known`` that look like ``word``, the likest first."""
    if len(word) > _LONGEST:
        return []
    return get_close_matches(word, sorted(set(known)), n=_MOST, cutoff=_ALIKE)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question with what is close to ``word``; followed by, or else only, the advice ``otherwise``."""
    close = close_to(word, known)
    if not close:
        return otherwise
    question = f"Did you mean {' or '.join(close)}?"
    return f"{question} {otherwise}".rstrip()
