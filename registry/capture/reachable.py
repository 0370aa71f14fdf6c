"""Which of the user's definitions a function reaches: found by reading, and compared without layout.

A function's result depends on its own text, on the functions, classes and constants of the user's modules
that it names, on what those name in turn, and on what these modules do when they are imported. Comments,
layout, docstrings and other definitions do not count. What is looked up by a computed name is not found.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from registry.capture.imports import from_module, module_files, parse, search_path
from registry.errors import InvalidInput

#: Stands for what a module does when it is imported, beside defining names.
EFFECTS = "<module>"


def reached(file: Path, name: str, root: Path) -> dict[str, str]:
    """``FILE:NAME`` of each definition that ``name`` in ``file`` reaches, itself among them, -> its digest.

    Raises:
        InvalidInput: the file does not define the name, or is not valid Python.
    """
    return _Reader(root).reached(file, name)


def digest_of(definitions: Mapping[str, str]) -> str:
    """One digest of all that `reached` found."""
    return hashlib.sha256(json.dumps(definitions, sort_keys=True).encode()).hexdigest()


class _Module:
    """One parsed file: what it defines and what it imports at its top level."""

    def __init__(self, file: Path, folders: Sequence[Path]) -> None:
        self.definitions: dict[str, list[ast.stmt]] = defaultdict(list)
        self.modules: dict[str, str] = {}  # local name -> dotted module
        self.members: dict[str, tuple[list[str], str]] = {}  # local name -> (modules it may be of, its name)
        self.stars: list[str] = []
        self.effects: list[ast.stmt] = []
        self._file, self._folders = file, folders
        for statement in parse(file).body:
            self._read(statement)

    def _read(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):  # imports inside functions bind names that only they use
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.modules[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                self._read_from(node)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return
        bound = list(_bound(statement))
        for name in bound:
            self.definitions[name].append(statement)
        if not bound and not _is_text(statement):
            self.effects.append(statement)

    def _read_from(self, node: ast.ImportFrom) -> None:
        modules = list(from_module(node, self._file, self._folders))
        for alias in node.names:
            if alias.name == "*":
                self.stars += modules
            else:
                self.members[alias.asname or alias.name] = (modules, alias.name)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement at the top level binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
    elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.stmt):
                yield from _bound(child)
            elif isinstance(child, ast.ExceptHandler):
                yield from (name for each in child.body for name in _bound(each))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _Reader:
    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._modules: dict[Path, _Module] = {}
        self._found: dict[str, str] = {}
        self._waiting: list[tuple[Path, str]] = []

    def reached(self, file: Path, name: str) -> dict[str, str]:
        file = file.resolve()
        self._folders = search_path(file, self._root)
        if name not in self._module(file).definitions:
            raise InvalidInput(
                f"{file.name} does not define '{name}' at its top level.", remedy="Define the task there."
            )
        self._waiting = [(file, name)]
        while self._waiting:
            self._visit(*self._waiting.pop())
        return dict(sorted(self._found.items()))

    def _module(self, file: Path) -> _Module:
        if file not in self._modules:
            self._modules[file] = _Module(file, self._folders)
        return self._modules[file]

    def _visit(self, file: Path, name: str) -> None:
        key = f"{file.relative_to(self._root).as_posix()}:{name}"
        if key in self._found:
            return
        module = self._module(file)
        statements = module.effects if name == EFFECTS else module.definitions[name]
        self._found[key] = _digest(statements)
        if name != EFFECTS and module.effects:
            self._waiting.append((file, EFFECTS))
        for statement in statements:
            for used in _Used(_plain(statement)).found:
                self._follow(file, module, used)

    def _follow(self, file: Path, module: _Module, used: tuple[str, ...]) -> None:
        """``used`` is a name with the attributes that are taken of it: ``("helpers", "clean")``."""
        first = used[0]
        if first in module.definitions:
            self._waiting.append((file, first))
        elif first in module.members:
            modules, name = module.members[first]
            for each in modules:
                self._follow_in(each, (name, *used[1:]))
        elif first in module.modules:
            self._follow_in(module.modules[first], used[1:])
        else:
            for each in module.stars:
                if (target := self._file_of(each)) and first in self._module(target).definitions:
                    self._waiting.append((target, first))

    def _follow_in(self, module: str, names: tuple[str, ...]) -> None:
        """What ``names`` means in a module of the user's; all of the module where that cannot be told."""
        if names and self._file_of(f"{module}.{names[0]}"):
            self._follow_in(f"{module}.{names[0]}", names[1:])
            return
        file = self._file_of(module)
        if file is None:
            return
        there = self._module(file)
        known = bool(names) and (
            names[0] in there.definitions or names[0] in there.members or names[0] in there.modules
        )
        if known or (names and there.stars):
            self._follow(file, there, names)
        else:
            self._waiting += [(file, name) for name in [*there.definitions, EFFECTS]]

    def _file_of(self, module: str) -> Path | None:
        """The file of exactly that module, if it is the user's."""
        files = module_files(module, self._folders)
        last = module.rpartition(".")[2]
        for file in reversed(files):
            if file.is_relative_to(self._root) and (
                file.stem == last or (file.stem == "__init__" and file.parent.name == last)
            ):
                return file
        return None


class _Used(ast.NodeVisitor):
    """The names that a statement uses, each with the attributes that are taken of it."""

    def __init__(self, statement: ast.AST) -> None:
        self._statement = statement

    @cached_property
    def found(self) -> set[tuple[str, ...]]:
        self._found: set[tuple[str, ...]] = set()
        self.visit(self._statement)
        return self._found

    def visit_Name(self, node: ast.Name) -> None:
        self._found.add((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self._found.add((inner.id, *reversed(names)))
        else:
            self.visit(inner)


def _digest(statements: Sequence[ast.stmt]) -> str:
    text = "\n".join(ast.dump(_plain(statement)) for statement in statements)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(statement: ast.stmt) -> ast.AST:
    """The statement without docstrings, and without a task's options: they do not change what it makes."""
    return _Strip().visit(ast.fix_missing_locations(_copy(statement)))  # type: ignore[no-any-return]


def _copy(statement: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(statement)).body[0]


class _Strip(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._strip(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._strip(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._strip(node)

    def _strip(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        node.decorator_list = [each for each in node.decorator_list if not _is_task(each)]
        body = [each for each in node.body if not _is_text(each)]
        node.body = body or [ast.Pass()]
        self.generic_visit(node)
        return node


def _is_task(decorator: ast.expr) -> bool:
    """Whether a decorator is ``@env.task`` or ``@env.task(...)``."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr == "task"
