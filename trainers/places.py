"""Where in a pipeline a step is asked for: the branch of the tree of asyncio tasks, and the call in it.

A place must be the same in each execution of a pipeline, whatever ends first. So branches are numbered when
they are begun, not when they ask for something, and by the name of their coroutine: a task that a library
begins on the side does not change the numbers of the pipeline's own.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class Branch:
    """One asyncio task of a pipeline. The first is nameless; below are ``arm[0]``, ``arm[0].map0[3]``."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._counts: Counter[str] = Counter()

    def below(self, name: str) -> Branch:
        """The next branch of that name that begins here."""
        return Branch(f"{self.path}.{self._next(name)}" if self.path else self._next(name))

    def _next(self, name: str) -> str:
        number = self._count(f"[{name}")
        return f"{name}[{number}]"

    def step(self, task: str) -> str:
        """The place of the next call of ``task`` here."""
        return f"{self.path}/{task}#{self._count(task) + 1}"

    def map_call(self) -> int:
        """The number of the next `gather_map` here."""
        return self._count("[map")

    def _count(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what] - 1


_branch: ContextVar[Branch | None] = ContextVar("podium_branch", default=None)


def current_branch() -> Branch:
    """The branch that runs now.

    Raises:
        LookupError: no pipeline runs here.
    """
    branch = _branch.get()
    if branch is None:
        raise LookupError("no pipeline runs here")
    return branch


def map_call() -> int:
    """The number of the next `gather_map` in this branch; 0 outside of a pipeline."""
    branch = _branch.get()
    return branch.map_call() if branch is not None else 0


def follow_branches(loop: asyncio.AbstractEventLoop) -> None:
    """Have all tasks of ``loop`` that are begun from here on know their branch."""
    # asyncio types a factory by another way of passing the context than it has.
    loop.set_task_factory(_begin)  # type: ignore[arg-type]


def _begin(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    *,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    context = context or copy_context()
    above = _branch.get()
    branch = Branch() if above is None else above.below(_name(coroutine))
    context.run(_branch.set, branch)
    return asyncio.Task(coroutine, loop=loop, context=context, **options)


def _name(coroutine: Coroutine[Any, Any, Any]) -> str:
    """The coroutine's name, without what would divide a place."""
    return re.sub(r"\W+", "-", getattr(coroutine, "__name__", type(coroutine).__name__))
