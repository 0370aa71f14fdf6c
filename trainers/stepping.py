"""Calling a task inside a task: who turns such a call into a step."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from trainers.tasks import Task


class Stepper(Protocol):
    """The driver of a pipeline."""

    def step(self, task: Task[..., Any], given: Mapping[str, Any]) -> Awaitable[Any]:
        """Ask for a step now, at the place of this call; its result when it is awaited."""

    def note(self, name: str, value: Any) -> Any:
        """``value`` (plain JSON) in the first execution; in each later one, what it was in the first."""


_stepper: ContextVar[Stepper | None] = ContextVar("podium_stepper", default=None)


def current_stepper() -> Stepper | None:
    """The driver whose pipeline runs here; None outside of one."""
    return _stepper.get()


def enter(stepper: Stepper | None) -> Token[Stepper | None]:
    """Have calls of tasks in this context become steps; with None, plain calls again, until `leave`."""
    return _stepper.set(stepper)


def leave(entered: Token[Stepper | None]) -> None:
    _stepper.reset(entered)
