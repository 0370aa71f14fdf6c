"""Which of the user's own files a Python file needs, found by reading and not by running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from registry.errors import InvalidInput

#: Podium's own packages. A worker has them, and a user's modules may not have their names.
ROOMS = ("registry", "triggers", "trainers", "serving")

#: A folder with one of these is the root of a project.
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")


def project_root(file: Path) -> Path:
    """The nearest folder above ``file`` that looks like a project's, or the folder that it lies in."""
    folder = file.resolve().parent
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in _ROOT_MARKS):
            return candidate
    return folder


def search_path(file: Path, root: Path) -> list[Path]:
    """Where the file's imports are looked for: beside it, in the project's root, in the root's ``src``."""
    folders = [file.resolve().parent, root.resolve(), root.resolve() / "src"]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def needed_files(file: Path, root: Path) -> list[Path]:
    """``file`` and every module under ``root`` that it imports, directly or through others, sorted.

    Imports inside functions count. What is imported by a computed name is not found.
    """
    folders = search_path(file, root)
    found: dict[Path, None] = {}
    waiting = [file.resolve()]
    while waiting:
        current = waiting.pop()
        if current in found or not current.is_relative_to(root.resolve()):
            continue
        found[current] = None
        for name in _imported_names(current, folders):
            waiting += module_files(name, folders)
    return sorted(found)


def _imported_names(file: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Dotted names that may be modules: ``from a import b`` gives both ``a`` and ``a.b``."""
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for module in from_module(node, file, folders):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)


def parse(file: Path) -> ast.Module:
    """A Python file as a tree. Raises `InvalidInput` where it is not valid."""
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InvalidInput(
            f"{file.name}:{line} is not valid Python: {error}.", remedy="Mend the file first."
        ) from error


def from_module(node: ast.ImportFrom, file: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Absolute names of the module that a ``from`` names; a relative one has one for each search folder."""
    if not node.level:
        yield node.module or ""
        return
    package = file.parent
    for _ in range(node.level - 1):
        package = package.parent
    for folder in folders:
        if package.is_relative_to(folder) and package != folder:
            yield ".".join((*package.relative_to(folder).parts, *filter(None, [node.module])))


def module_files(name: str, folders: Sequence[Path]) -> list[Path]:
    """Files that importing ``name`` reads: the module's, and ``__init__.py`` of the packages above it."""
    parts = name.split(".")
    if parts[0] in ROOMS:  # found under the root when the project is podium's own source
        return []
    for folder in folders:
        top = folder / parts[0]
        if top.is_dir() or top.with_suffix(".py").is_file():
            paths = [folder.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
            candidates = [file for path in paths for file in (path / "__init__.py", path.with_suffix(".py"))]
            if existing := [file.resolve() for file in candidates if file.is_file()]:
                return existing
    return []
