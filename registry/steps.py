"""Steps of a pipeline: their names, which of them were settled, and what comes after which.

A step's *place* is ``BRANCH/TASK#N``: the branch of its driver's tree of asyncio tasks, and the how manyth
call of that task there. A step with a key of its own has the place ``=KEY``. Branches nest with dots:
``arm[2].map0[5]``. Calls of `gather_map` are named ``mapN``; their branches never wait for one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from registry.errors import InvalidInput, NotFound
from registry.runs import ENDED, Run, RunState
from registry.suggesting import did_you_mean

#: Branches of one call of `gather_map` begin with this.
MAP = "map"


@dataclass(frozen=True, slots=True)
class Change:
    """What a fork does differently at one step."""

    place: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # plain values by parameter
    inputs: Mapping[str, str] = field(default_factory=dict)  # references by parameter


@dataclass(frozen=True, slots=True)
class Inside:
    """A fork that begins inside a step: that step is done anew with some of its own steps kept."""

    place: str  # of the step that is entered
    kept: tuple[str, ...]  # ids of those of its steps that it keeps
    begin: str | None  # place of the step of its own with which it begins
    change: Change | None = None  # what it does differently at that step
    inside: Inside | None = None  # where it begins inside of that step in turn


def task_name(task: str) -> str:
    """The short name of a task: "train" of "train.py:train"."""
    return task.rpartition(":")[2]


def names(steps: Sequence[Run]) -> dict[str, str]:
    """Run id -> the step's name among its siblings: ``train``, or ``train#3`` where there are several."""
    counts = Counter(task_name(step.task) for step in steps)
    seen: Counter[str] = Counter()
    named = {}
    for step in steps:
        short = task_name(step.task)
        seen[short] += 1
        named[step.id] = short if counts[short] == 1 else f"{short}#{seen[short]}"
    return named


def find(steps: Sequence[Run], name: str) -> Run:
    """The step of that name; ``train#1`` is also ``train`` where there is one only.

    Raises:
        NotFound: there is none; the message lists those that there are.
        InvalidInput: there are several of that task.
    """
    named = names(steps)
    by_name = {name: step for step in steps for name in (named[step.id], step.id)}
    short, _, number = name.partition("#")
    if name in by_name:
        return by_name[name]
    if number == "1" and short in by_name:
        return by_name[short]
    there = ", ".join(named.values()) or "none"
    several = [each for each in named.values() if each.partition("#")[0] == name]
    if several:
        raise InvalidInput(
            f"There are {len(several)} steps '{name}'.", remedy=f"Say which: {', '.join(several)}."
        )
    meant = did_you_mean(name, named.values(), f"Steps are: {there}.")
    raise NotFound(f"There is no step '{name[:80]}'.", remedy=meant, steps=there)


def branch_of(step: Run) -> str | None:
    """The branch in which a step was asked for; None for one with a key of its own."""
    place = step.place or ""
    return None if place.startswith("=") else place.rpartition("/")[0]


def handled(steps: Sequence[Run]) -> set[str]:
    """Ids of the steps that failed and whose driver went on from there: its code has dealt with the error."""
    last: dict[str, Run] = {}
    for step in steps:  # in the order in which they were asked for
        branch = branch_of(step)
        if branch is not None:
            last[branch] = step
    return {
        step.id
        for step in steps
        if step.state is RunState.FAILED
        and (branch := branch_of(step)) is not None
        and _asked_after(last[branch], step)
    }


def settled(steps: Sequence[Run]) -> list[Run]:
    """The steps that a later execution takes as they are: those that succeeded, and failures dealt with."""
    dealt_with = handled(steps)
    return [step for step in steps if step.state is RunState.SUCCEEDED or step.id in dealt_with]


def to_repeat(steps: Sequence[Run]) -> list[Run]:
    """The steps that came to nothing, and that a later execution does again when it asks for them."""
    dealt_with = handled(steps)
    return [
        step
        for step in steps
        if step.state in ENDED and step.state is not RunState.SUCCEEDED and step.id not in dealt_with
    ]


def kept(steps: Sequence[Run], start: Run) -> list[Run]:
    """The settled steps that a fork from ``start`` on takes over: all but that one and what came after it."""
    return [step for step in settled(steps) if step.id != start.id and not _may_depend(step, start, steps)]


def _may_depend(step: Run, start: Run, steps: Sequence[Run]) -> bool:
    """Whether what ``start`` did can have led to ``step``."""
    return _asked_after(step, start) and not _parallel(step, start, steps)


def _asked_after(step: Run, other: Run) -> bool:
    """Whether ``step`` was asked for when ``other`` had ended.

    By the count of events, which the database gives out: clocks of two machines may differ. The end of a
    step is an event itself, but for one that a driver did itself, or that was reused.
    """
    if step.id == other.id or other.done is None:
        return False
    is_no_event = other.inline or other.source is not None
    return step.asked >= other.done if is_no_event else step.asked > other.done


def _parallel(step: Run, start: Run, steps: Sequence[Run]) -> bool:
    """Whether the two are in branches that ran beside each other."""
    mine, its = branch_of(step), branch_of(start)
    if mine is None or its is None or mine == its:
        return False
    depth = _common(mine.split("."), its.split("."))
    mine_parts, its_parts = mine.split(".") if mine else [], its.split(".") if its else []
    if depth >= len(mine_parts) or depth >= len(its_parts):
        return False  # one is above the other
    if _map_call(mine_parts[depth]) and _map_call(mine_parts[depth]) == _map_call(its_parts[depth]):
        return True
    beside = ".".join(mine_parts[: depth + 1])
    first = min(other.asked for other in steps if _within(branch_of(other), beside))
    return start.done is not None and first < start.done


def _common(mine: Sequence[str], its: Sequence[str]) -> int:
    depth = 0
    while depth < min(len(mine), len(its)) and mine[depth] == its[depth]:
        depth += 1
    return depth


def _map_call(part: str) -> str:
    """``map0`` of ``map0[5]``; empty for another branch."""
    call = part.partition("[")[0]
    return call if call.startswith(MAP) and call[len(MAP) :].isdigit() else ""


def _within(branch: str | None, above: str) -> bool:
    return branch is not None and (branch == above or branch.startswith(f"{above}."))
