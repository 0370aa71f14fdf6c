"""Which names files may have, so that every machine can hold them and none is written outside its folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from registry.errors import InvalidContent

_LONGEST_PART = 255  # bytes, the limit of the common file systems
_LONGEST_PATH = 2048


def check_path(path: str) -> str:
    """Return ``path`` if it is a plain relative POSIX path.

    Raises:
        InvalidContent: it is empty, absolute, climbs, is not Unicode, or has control characters.
    """
    problem = _problem(path)
    if problem:
        shown = path.encode("utf-8", "backslashreplace").decode()[:200]
        raise InvalidContent(f"The file name {shown!r} {problem}.", remedy="Rename the file.", path=shown)
    return path


def _problem(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if not path:
        return "is empty"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        return "has a control character in it"
    if path.startswith("/"):
        return "is absolute; names must be relative to the folder"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "leaves its folder or has an empty part"
    if len(encoded) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST_PART for part in path.split("/")):
        return "is too long"
    return None


def check_collisions(paths: Iterable[str]) -> None:
    """Refuse names that are one name on a file system that folds case or Unicode forms.

    A file whose path is another's folder (after folding) collides too.
    """
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        folded = fold(path)
        if folded in seen:
            raise _collision(seen[folded], path)
        seen[folded] = path
        for parent in PurePosixPath(path).parents:
            spelled = str(parent)
            first = folders.setdefault(fold(spelled), spelled)
            if first != spelled:
                raise _collision(first, spelled)
    for folded, folder in folders.items():
        if folded in seen:
            raise _collision(seen[folded], folder)


def fold(path: str) -> str:
    """The form in which two names are compared: canonical caseless matching, Unicode standard, D145."""
    return unicodedata.normalize(
        "NFC", unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())
    )


def _collision(one: str, other: str) -> InvalidContent:
    return InvalidContent(
        f"The names {one!r} and {other!r} are the same where case or Unicode form is ignored.",
        remedy="Rename one of them: on such a file system one would overwrite the other.",
        paths=[one, other],
    )
