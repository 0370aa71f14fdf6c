"""The tree of a run: its steps with what became of each, as people and programs look at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from registry.errors import InvalidInput, NotFound
from registry.protocol import Registry
from registry.runs import RESULT, Run
from registry.steps import names
from registry.suggesting import did_you_mean
from trainers.results import fill


@dataclass(frozen=True, slots=True)
class Node:
    """A run in a tree."""

    name: str  # "train#3"; the task of the one at the top
    run: Run
    reused: bool  # not executed in the newest execution of its parent
    steps: tuple[Node, ...] = ()

    @property
    def seconds(self) -> float | None:
        """How long it took; so far, where it has not ended."""
        if self.run.started_at is None:
            return None
        return ((self.run.ended_at or datetime.now(UTC)) - self.run.started_at).total_seconds()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Itself and all below it, with how deep they are."""
        yield depth, self
        for step in self.steps:
            yield from step.walk(depth + 1)

    def to_json(self) -> dict[str, Any]:
        run = self.run
        outputs = {o.name: o.ref or o.value for o in run.outputs}
        return {
            "step": self.name,
            "run": run.id,
            "task": run.task,
            "state": run.state.value,
            "reused": self.reused,
            "source": run.source,
            "attempt": run.attempts,
            "seconds": self.seconds,
            "cause": run.cause.value if run.cause else None,
            "error": asdict(run.error) if run.error else None,
            "waits_for": run.waits_for,
            "result": fill(run.result, outputs) if run.result is not None else outputs.get(RESULT),
            "steps": [step.to_json() for step in self.steps],
        }


def tree_of(registry: Registry, run: str) -> Node:
    """A run with all below it."""
    top = registry.runs.get(run)
    return Node(top.task, top, top.source is not None, _below(registry, top))


def _below(registry: Registry, run: Run) -> tuple[Node, ...]:
    steps = registry.steps.of(run.id)
    if not steps:
        return ()
    named, since = names(steps), _last_began(registry, run)
    return tuple(Node(named[step.id], step, _reused(step, since), _below(registry, step)) for step in steps)


def _last_began(registry: Registry, run: Run) -> datetime | None:
    """When the newest execution of a run began, if it was not the first."""
    attempts: Sequence[Any] = registry.runs.attempts(run.id)
    return attempts[-1].started_at if len(attempts) > 1 else None


def _reused(step: Run, since: datetime | None) -> bool:
    earlier = since is not None and step.ended_at is not None and step.ended_at <= since
    return step.source is not None or earlier


def find_in_tree(top: Node, name: str) -> Node:
    """The node of a name, or of a path from the top: the top itself, a step of it, or the only one below.

    Raises:
        NotFound: there is none; the message lists those that there are.
        InvalidInput: there are several of that name.
    """
    named = _paths(top)
    wanted = {name, name.removesuffix("#1")}
    found = [
        node for path, node in named.items() if wanted & {path, node.name, node.run.id, f"{top.name}/{path}"}
    ]
    direct = [node for node in found if node is top or node in top.steps]
    if len(direct or found) == 1:
        return (direct or found)[0]
    if found:
        several = [path for path, node in named.items() if node in found]
        raise InvalidInput(
            f"There are {len(found)} steps '{name[:80]}'.", remedy=f"Say which: {', '.join(several)}."
        )
    there = ", ".join(named) or "none"
    raise NotFound(
        f"There is no step '{name[:80]}' in run {top.run.id}.",
        remedy=did_you_mean(name, named, f"Steps are: {there}."),
    )


def _paths(top: Node) -> dict[str, Node]:
    """Path from the top -> node; the top by its own name."""
    found = {top.name: top}

    def walk(above: str, node: Node) -> None:
        for step in node.steps:
            path = f"{above}{step.name}"
            found[path] = step
            walk(f"{path}/", step)

    walk("", top)
    return found
