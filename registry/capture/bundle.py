"""The code that travels: a file, and the modules of its project that it imports."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from registry.capture.imports import needed_files, project_root
from registry.capture.secrets import find_secret, is_secret_file
from registry.capture.source import ignored_by_git
from registry.errors import InvalidInput

LARGEST_BUNDLE = 20 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder of code as it lies in the project, ready to be stored."""

    folder: Path
    entry: str  # path of the file in the folder, with "/"
    files: tuple[str, ...]  # all paths in the folder, sorted
    notices: tuple[str, ...]  # what was left out, in words for the user


def make_bundle(file: Path, destination: Path, *, root: Path | None = None) -> Bundle:
    """Copy ``file`` and what it imports under its project's ``root`` to the new folder ``destination``.

    Files that git ignores and files known to hold secrets stay behind, with a notice. The same code gives the
    same bytes under the same paths.

    Raises ``InvalidInput`` when the file is missing, is not Python, is itself one that must stay behind, has
    a secret written into it, or when all of it is larger than 20 MB.
    """
    if not file.is_file():
        raise InvalidInput(
            f"There is no file {file}.", remedy="Check the path: FILE:TASK names a Python file."
        )
    root = (root or project_root(file)).resolve()
    entry = file.resolve()
    if not entry.is_relative_to(root):
        raise InvalidInput(f"{file} is not in the project {root}.", remedy="Name a root that holds the file.")
    needed = {path.relative_to(root).as_posix(): path for path in needed_files(entry, root)}
    kept, notices = _leave_out(needed, root)
    name = entry.relative_to(root).as_posix()
    if name not in kept:
        raise InvalidInput(
            f"{name} may not travel. {' '.join(notices)}", remedy="Rename it, or let git track it."
        )
    _check_size(kept)
    for path, source in kept.items():
        _check_no_secret(path, source)
    for path, source in kept.items():
        target = destination / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return Bundle(destination, name, tuple(kept), tuple(notices))


def _leave_out(files: dict[str, Path], root: Path) -> tuple[dict[str, Path], list[str]]:
    ignored = ignored_by_git(root, list(files))
    secret = {path for path in files if is_secret_file(path)}
    notices = [f"{path} stays behind: git ignores it." for path in sorted(ignored - secret)]
    notices += [f"{path} stays behind: its name is one for secrets." for path in sorted(secret)]
    return {path: source for path, source in files.items() if path not in ignored | secret}, notices


def _check_size(files: dict[str, Path]) -> None:
    sizes = {path: source.stat().st_size for path, source in files.items()}
    if sum(sizes.values()) > LARGEST_BUNDLE:
        total, largest = sum(sizes.values()), max(sizes, key=lambda path: sizes[path])
        raise InvalidInput(
            f"The code is {total / 2**20:.1f} MB, and a bundle may be {LARGEST_BUNDLE / 2**20:.0f} MB.",
            remedy=f"The largest is {largest} ({sizes[largest] / 2**20:.1f} MB): push data as a dataset.",
        )


def _check_no_secret(path: str, source: Path) -> None:
    found = find_secret(source.read_text(encoding="utf-8", errors="replace"))
    if found is not None:
        line, what = found
        raise InvalidInput(
            f"{path}:{line} has what looks like {what} in it, and code is stored for good.",
            remedy="Read it from the environment instead, and revoke the one that stood there.",
        )
