"""What must be true of pipelines in the end: each step is done once, and stays what it was."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation import oracle
from tests.simulation.world import Broken, World

_ENDS = ("succeeded", "failed", "interrupted", "cancelled")


@dataclass
class Told:
    """What people were told, and what the outside has seen."""

    roots: dict[str, str | None] = field(default_factory=dict)  # pipeline -> the one that it was forked from
    cancelled: set[str] = field(default_factory=set)
    forked_at: dict[str, str] = field(default_factory=dict)  # fork -> the place from which it is done anew
    executions: list[tuple[str, int]] = field(default_factory=list)  # (step, attempt) in order
    given: dict[tuple[str, str], set[Any]] = field(default_factory=dict)  # (driver, what) -> all it ever was
    finished: dict[str, Any] = field(default_factory=dict)  # step -> its result when somebody recovered it

    def give(self, driver: str, what: str, value: Any) -> Any:
        """Note that a driver (by its run) was given a value."""
        self.given.setdefault((driver, what), set()).add(value)
        return value


#: In which order the steps of `stepping.pipeline` are asked for; those of its arms come as the fourth.
_ORDER = {"/draw#1": 0, "/random#1": 1, "/small#1": 2, "/shared#1": 3, "/inner#1": 5, "/draw#2": 6}


def must_follow(place: str, start: str) -> bool:
    """Whether the step at ``place`` is asked for after the one at ``start`` in every execution."""
    (mine, branch, nth), (its, beside, first) = _position(place), _position(start)
    return mine > its or (branch != "" and branch == beside and nth > first)


def _position(place: str) -> tuple[int, str, int]:
    branch, _, call = place.partition("/")
    return _ORDER.get(place, 7) if not branch else 4, branch, int(branch != "" and call.startswith("shared"))


class Row(NamedTuple):
    """A run, as the journal has it."""

    id: str
    task: str
    state: str
    attempts: int
    parent: str | None
    place: str | None
    source: str | None
    cache_key: str | None
    pool: str
    result: Any
    error: Any


def check_pipelines(world: World, told: Told) -> None:
    """Invariant 4. Raises `world.Broken`."""
    columns = "id, task, state, attempts, parent, place, source, cache_key, pool, result, error"
    rows = [
        Row(*row[:-2], *(json.loads(each) if each else None for each in row[-2:]))
        for row in world.connection.execute(f"SELECT {columns} FROM run")
    ]
    runs = {row.id: row for row in rows}
    for row in rows:
        diverged = row.error is not None and row.error["type"] == "PipelineDiverged"
        _require(world, not diverged, f"{row} has diverged")
        if row.pool != "inline" and row.source is None:
            _check_attempts(world, row)
    _check_stories(world, runs)
    _check_what_was_given(world, told, runs)
    _check_flights(world, rows)
    _check_forks(world, told, rows)
    for root in told.cancelled:
        _require(world, runs[root].state == "cancelled", f"{root} was cancelled, and is {runs[root]}")
    for step, result in told.finished.items():
        _require(world, runs[step].result == result, f"{step} was finished with {result}: {runs[step]}")


def _check_attempts(world: World, row: Row) -> None:
    found = world.connection.execute(
        "SELECT number, epoch, outcome FROM attempt WHERE run = ? ORDER BY number", (row.id,)
    ).fetchall()
    _require(world, [n for n, _, _ in found] == list(range(1, row.attempts + 1)), f"attempts of {row}")
    epochs = [epoch for _, epoch, _ in found]
    _require(world, epochs == sorted(set(epochs)), f"epochs of {row}: {epochs}")
    won = [number for number, _, outcome in found if outcome == "succeeded"]
    _require(world, len(won) == (row.state == "succeeded"), f"outcomes of {row}: {found}")
    _require(world, None not in (outcome for _, _, outcome in found), f"an attempt without end: {row}")
    if won and row.task.endswith((":draw", ":shared")):
        _require(world, row.result == f"{row.id} {won[0]}", f"{row} has the result of another attempt")


def _check_stories(world: World, runs: dict[str, Row]) -> None:
    """Started and ended take turns, nothing starts after its success, no step after its pipeline's end."""
    running: set[str] = set()
    done: set[str] = set()
    for fact in oracle.outbox(world):
        run, kind = str(fact.data.get("run")), fact.type.removeprefix("podium.run.")
        if kind == "started":
            _require(world, run not in running, f"{run} started twice at once")
            _require(world, run not in done, f"{run} started again after its success")
            _require(world, not _above(run, runs) & done, f"{run} started after what asked for it had ended")
            running.add(run)
        elif kind in _ENDS:
            running.discard(run)
            final = kind == "succeeded" or (kind == "cancelled" and runs[run].parent is None)
            done |= {run} if final else set()
    _require(world, not running, f"never ended: {running}")


def _above(run: str, runs: dict[str, Row]) -> set[str]:
    """The runs that have asked for it, up to the pipeline itself."""
    parent = runs[run].parent
    return set() if parent is None else {parent, *_above(parent, runs)}


def _check_what_was_given(world: World, told: Told, runs: dict[str, Row]) -> None:
    """A driver sees in each of its executions what it saw in the first; its result is made of that."""
    for (run, what), values in told.given.items():
        _require(world, len(values) == 1, f"{run} was given as '{what}': {values}")
        if runs[run].state == "succeeded":
            (value,) = values
            _require(world, value in _flat(runs[run].result), f"{value} is no part of {runs[run]}")
    executions = Counter(told.executions)
    _require(world, not executions or max(executions.values()) == 1, f"twice: {executions.most_common(1)}")
    for step, attempt in executions:
        _require(world, attempt <= runs[step].attempts, f"an execution of {step} that nobody asked for")


def _flat(value: Any) -> list[Any]:
    return [each for part in value for each in _flat(part)] if isinstance(value, list) else [value]


def _check_flights(world: World, rows: list[Row]) -> None:
    """Of all that want the same cached work one does it at a time, and none once it is done."""
    flights: dict[str, str] = {
        row.id: row.cache_key for row in rows if row.cache_key is not None and row.source is None
    }
    flying: dict[str, str] = {}
    landed: dict[str, str] = {}
    for fact in oracle.outbox(world):
        run, kind = str(fact.data.get("run")), fact.type.removeprefix("podium.run.")
        key = flights.get(run)
        if key is None:
            continue
        if kind == "started":
            _require(world, key not in landed, f"{run} does again what {landed.get(key)} has done")
            _require(world, flying.get(key, run) == run, f"{run} does what {flying.get(key)} does")
            flying[key] = run
        elif kind in _ENDS:
            flying.pop(key, None)
            if kind == "succeeded":
                landed[key] = run
    results: dict[str, Any] = {row.id: row.result for row in rows}
    for row in rows:
        if row.source is not None and row.state == "succeeded":
            _require(world, row.result == results[row.source], f"{row} is not what {row.source} made")


def _check_forks(world: World, told: Told, rows: list[Row]) -> None:
    """A fork has what came before its start as it was, and nothing of what came after."""
    steps: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.parent is not None:
            steps[row.parent][row.place or ""] = row
    for fork, start in told.forked_at.items():
        before = steps[told.roots[fork] or ""]
        for place, step in steps[fork].items():
            copied = place in before and step.result == before[place].result and step.state == "succeeded"
            if place == start or must_follow(place, start):
                reused = copied and step.cache_key is None
                _require(world, not reused, f"{fork} was forked from {start} and kept {place}: {step}")
            elif copied and step.attempts == 0 and step.pool != "inline":
                origin = before[place].source or before[place].id
                _require(world, step.source == origin, f"{step} does not say that {origin} made it")


def _require(world: World, holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"{what}\n{world.story()}")
