"""Loading a user's file, and finding what it declares."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import getattr_static
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from registry.apps.app import App, Deployable
from registry.capture.imports import ROOMS, project_root, search_path
from registry.errors import InvalidApp
from registry.references import check_name
from registry.values import AppObject


@dataclass(frozen=True)
class LoadedFile:
    """A user's file as a module, with what it declares at its top level."""

    path: Path
    root: Path  # folder from which its own imports are found
    module: ModuleType
    app: str

    @property
    def deployables(self) -> list[Deployable]:
        """Declared objects, by kind and name. One object under two variables counts once."""
        found = {id(v): v for v in vars(self.module).values() if _is_deployable(v)}
        return sorted(found.values(), key=lambda each: (each.deployable, each.name))

    def objects(self) -> list[AppObject]:
        """Declared objects as they are stored.

        Raises:
            InvalidApp: two objects of one kind have one name.
        """
        seen: set[tuple[str, str]] = set()
        for each in self.deployables:
            if (each.deployable, each.name) in seen:
                raise InvalidApp(
                    f"{self.path.name} declares two {each.deployable}s named '{each.name}'.",
                    remedy="Rename one of them.",
                )
            seen.add((each.deployable, each.name))
        return [AppObject(self.app, d.deployable, d.name, d.to_json()) for d in self.deployables]


def load_file(path: Path, *, root: Path | None = None) -> LoadedFile:
    """Import a user's Python file.

    ``root`` is its project's folder, found from the file unless given. The rooms are imported first, so that
    a module of the user's cannot take their place.

    Raises:
        InvalidApp: there is no such file, it raises, or its folder has modules with the names of podium's.
    """
    path = path.absolute()
    if not path.is_file() or path.suffix != ".py":
        raise InvalidApp(f"There is no Python file {path}.", remedy="Give the path of a .py file.")
    root = root.absolute() if root is not None else project_root(path)
    folders = search_path(path, root)
    for folder in folders:
        _refuse_shadowing(folder)
    for room in ROOMS:
        import_module(room)
    _put_first_on_path(folders)
    module = _import(path)
    return LoadedFile(path, root, module, _app_name(path, module))


def _refuse_shadowing(folder: Path) -> None:
    if all((folder / room / "__init__.py").exists() for room in ROOMS):
        return  # a tree of podium's own, installed from it or not
    for room in ROOMS:
        for module in (folder / f"{room}.py", folder / room / "__init__.py"):
            if module.exists():
                raise InvalidApp(
                    f"{folder} has a module named '{room}', which is also the name of a package of podium's.",
                    remedy=f"Rename {module if module.stem == room else module.parent}, "
                    f"for example to 'my_{room}'.",
                )


def _put_first_on_path(folders: Sequence[Path]) -> None:
    """Let the file import its neighbours, now and later: its functions may import when they are called."""
    sys.path[:0] = [str(folder) for folder in folders if str(folder) not in sys.path]


def _import(path: Path) -> ModuleType:
    name = re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        if isinstance(error, KeyboardInterrupt):
            raise
        raise InvalidApp(_import_problem(path, error), remedy="Correct the file and try again.") from error
    return module


def _import_problem(path: Path, error: BaseException) -> str:
    """Where in the user's own file it went wrong, in one sentence."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines = [error.lineno]
    where = f", line {lines[-1]}" if lines else ""
    return f"{path.name}{where} cannot be imported: {type(error).__name__}: {error}"


def _app_name(path: Path, module: ModuleType) -> str:
    apps = {id(v): v for v in vars(module).values() if isinstance(v, App)}
    if len(apps) > 1:
        raise InvalidApp(f"{path.name} declares {len(apps)} apps.", remedy="Declare one App a file.")
    if apps:
        return next(iter(apps.values())).name
    return check_name(re.sub(r"[^a-z0-9._-]", "-", path.stem.lower()).lstrip(".-_") or "app")


def _is_deployable(value: object) -> TypeGuard[Deployable]:
    """Only what really has the members counts: a stand-in that answers to every name declares nothing."""
    return not isinstance(value, type) and all(
        getattr_static(value, member, None) is not None for member in ("deployable", "name", "to_json")
    )
