"""Which version a rollback goes to: a pure reading of an alias's history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from registry.values import Action


@dataclass(frozen=True, slots=True)
class Move:
    """One row of history, as far as a rollback cares."""

    generation: int
    action: Action
    to_version: int  # key or number; only compared


def rollback_target(
    history: Sequence[Move], lived: Collection[int] | None = None, deleted: Collection[int] = ()
) -> int | None:
    """The last earlier version that was live and is still there, or None if there is none.

    ``history`` is oldest first. ``lived`` holds the generations that serving brought live; None where nothing
    is deployed, and then holding the alias counts as being live. ``deleted`` holds versions that are gone.

    Going back takes what it left off the stack, so going back twice goes two back, and a version that was
    rolled away from is not what a later rollback returns to.
    """
    stack: list[int] = []
    for move in history:
        if move.action is not Action.PROMOTE:
            _unwind(stack, move.to_version)
        elif lived is None or move.generation in lived or move is history[-1]:
            stack.append(move.to_version)
    if not stack:
        return None
    unfit = {history[-1].to_version, *deleted}
    return next((version for version in reversed(stack) if version not in unfit), None)


def _unwind(stack: list[int], version: int) -> None:
    while stack and stack[-1] != version:
        stack.pop()
    if not stack:  # it went to a version that was named, not to one on the stack
        stack.append(version)
