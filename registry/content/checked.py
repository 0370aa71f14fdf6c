"""The files of a folder as content of a kind: scanned, checked, and a report among them read."""

from __future__ import annotations

from pathlib import Path

from registry.content.kinds import Kind, validate
from registry.content.scan import Scan, scan, unreadable
from registry.errors import InvalidInput
from registry.reports import Report, read_report
from registry.suggesting import did_you_mean


def checked(path: Path, kind_name: str) -> tuple[Scan, Report | None]:
    """The files that belong to content of the kind, and what a report among them says.

    Raises:
        InvalidContent: they are not what the kind requires.
    """
    kind = kind_of(kind_name)
    scanned = scan(path)
    try:
        valid = validate(kind, scanned)
        report = read_report(lambda name: _bytes(path / name)) if kind is Kind.REPORT else None
        return valid, report
    except OSError as error:
        raise unreadable(str(error.filename or path), error) from error


def kind_of(kind: str) -> Kind:
    """Raises `InvalidInput` unless it is one."""
    try:
        return Kind(kind)
    except ValueError as error:
        known = [k.value for k in Kind]
        raise InvalidInput(
            f"'{kind[:40]}' is not a kind of artifact.",
            remedy=did_you_mean(kind, known, f"Kinds are {', '.join(known)}."),
        ) from error


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
