"""Going on after memory ran out: less at a time, and then more memory."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from registry.errors import InvalidInput
from registry.resources import Resources
from trainers.errors import OOMError
from trainers.tasks import Task


@dataclass(frozen=True, slots=True)
class Shrink:
    """A task's parameters for how many examples it holds at once, and over how many steps it sums them up."""

    batch: str = "batch_size"
    accumulation: str | None = "gradient_accumulation"
    smallest: int = 1

    def next(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Half the batch and twice the accumulation, so that a step learns from as much; None at the end."""
        batch = int(given[self.batch])
        if batch < 2 * self.smallest or batch % 2:
            return None
        halved = {**given, self.batch: batch // 2}
        if self.accumulation is not None:
            halved[self.accumulation] = 2 * int(given[self.accumulation])
        return halved


@dataclass(frozen=True, slots=True)
class Try:
    """One call of a task: with what, and where."""

    given: Mapping[str, Any]
    resources: Resources | None = None  # None: the task's own
    left: tuple[Resources, ...] = ()  # what may be moved to

    def after_oom(self, first: Mapping[str, Any], shrink: Shrink | None) -> Try | None:
        """The next try: a smaller batch; where there is none, other resources with the ``first`` batch."""
        smaller = shrink.next(self.given) if shrink is not None else None
        if smaller is not None:
            return replace(self, given=smaller)
        if self.left:
            return Try(first, self.left[0], self.left[1:])
        return None


async def escalate(
    task: Task[..., Any],
    *args: Any,
    shrink: Shrink | None = None,
    resources: Sequence[Resources] = (),
    **kwargs: Any,
) -> Any:
    """Call ``task`` as a step; when it runs out of memory, again with less at a time or more memory.

        await escalate(train, base, data, shrink=Shrink("batch_size"), resources=[Resources(gpu="H200:1")])

    With ``shrink`` the batch is halved and its accumulation doubled as often as it can be; then the task
    moves to each of ``resources`` in turn, with the batch that it was first given. Each try is a step.

    Raises:
        OOMError: of the last try, when nothing is left.
        InvalidInput: the task has no such parameters.
    """
    given = task.with_defaults(*args, **kwargs)
    if shrink is not None:
        _check(task, shrink, given)
    attempt: Try | None = Try(given, left=tuple(resources))
    while True:
        assert attempt is not None
        called = task if attempt.resources is None else task.override(resources=attempt.resources)
        try:
            result = called(**attempt.given)
            return await result if isinstance(result, Awaitable) else result
        except OOMError:
            attempt = attempt.after_oom(given, shrink)
            if attempt is None:
                raise


def _check(task: Task[..., Any], shrink: Shrink, given: Mapping[str, Any]) -> None:
    for name in (shrink.batch, shrink.accumulation):
        if name is not None and not isinstance(given.get(name), int):
            raise InvalidInput(
                f"'{task.name}' has no whole number '{name}' to shrink by.",
                remedy="Name the task's parameters: Shrink('batch_size', 'gradient_accumulation').",
            )
