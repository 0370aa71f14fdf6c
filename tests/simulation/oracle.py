"""What must be true of a world in the end: acknowledged, history and raw stream say the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby

from registry.values import Event, Promotion
from tests.simulation.world import Broken, World
from triggers.bus import Stream

MOVES = ("podium.alias.promoted", "podium.alias.rolledback")


@dataclass
class Acknowledged:
    """What actors were told that it had been done."""

    moves: list[Promotion] = field(default_factory=list)
    expected: dict[tuple[str, str, int], int] = field(default_factory=dict)  # move -> generation it expected
    refused: int = 0


@dataclass(frozen=True)
class Move:
    """A row of history."""

    artifact: str
    alias: str
    generation: int
    before: int | None
    after: int
    event: str

    @property
    def where(self) -> tuple[str, str]:
        return self.artifact, self.alias


@dataclass(frozen=True)
class Fact:
    """A row of the outbox."""

    sequence: int
    id: str
    type: str
    key: str
    data: dict[str, object]


def history(world: World) -> list[Move]:
    rows = world.connection.execute(
        "SELECT a.name, p.alias, p.generation, p.from_version_id, p.to_version_id, p.event FROM promotion p"
        " JOIN artifact a ON a.id = p.artifact_id ORDER BY a.name, p.alias, p.generation"
    )
    return [Move(*row) for row in rows]


def outbox(world: World) -> list[Fact]:
    rows = world.connection.execute("SELECT sequence, id, type, key, data FROM event ORDER BY sequence")
    return [Fact(sequence, id, type, key, json.loads(data)) for sequence, id, type, key, data in rows]


def stream(world: World, which: Stream | None = None) -> list[Event]:
    log = world.bus.logs.get(which or world.stream())
    return list(log.events) if log else []


def relayed(world: World) -> bool:
    """Whether the newest stream has all that is in the outbox, and the database knows it."""
    relayed, newest = world.connection.execute(
        "SELECT relayed_sequence, event_sequence FROM podium"
    ).fetchone()
    events = stream(world)
    return bool(relayed == newest and events and events[-1].sequence == newest)


def check_promotions(world: World, acknowledged: Acknowledged) -> None:
    """Invariants 1 (between acknowledgement, history and outbox) and 3."""
    moves, facts = history(world), outbox(world)
    _check_chains(world, moves)
    _check_events_of_moves(world, moves, facts)
    rows = {(m.artifact, m.alias, m.generation): m for m in moves}
    for told in acknowledged.moves:
        row = rows.get((told.artifact, told.alias, told.generation))
        _require(world, row is not None and row.event == told.event, f"acknowledged and lost: {told}")
    twice = Counter((told.artifact, told.alias, told.generation) for told in acknowledged.moves)
    _require(world, not twice or max(twice.values()) == 1, f"acknowledged twice: {twice.most_common(1)}")
    for (name, alias, generation), expected in acknowledged.expected.items():
        _require(world, generation == expected + 1, f"{name}:{alias} went from {expected} to {generation}")


def _check_chains(world: World, moves: list[Move]) -> None:
    for where, group in groupby(moves, key=lambda move: move.where):
        chain = list(group)
        _require(world, [m.generation for m in chain] == list(range(1, len(chain) + 1)), f"a gap in {where}")
        before = [None, *(m.after for m in chain[:-1])]
        _require(world, [m.before for m in chain] == before, f"a move of {where} from where it was not")
        at = world.connection.execute(
            "SELECT generation, version_id FROM alias JOIN artifact ON artifact.id = artifact_id"
            " WHERE artifact.name = ? AND alias.name = ?",
            where,
        ).fetchone()
        _require(world, at == (chain[-1].generation, chain[-1].after), f"{where} is not where history says")


def _check_events_of_moves(world: World, moves: list[Move], facts: list[Fact]) -> None:
    _require(
        world,
        [fact.sequence for fact in facts] == list(range(1, len(facts) + 1)),
        f"the outbox has gaps: {[fact.sequence for fact in facts]}",
    )
    told = [(f.id, f.key, f.data["alias"], f.data["generation"]) for f in facts if f.type in MOVES]
    done = [(m.event, m.artifact, m.alias, m.generation) for m in moves]
    _require(world, sorted(told) == sorted(done), "history and events differ")
    for where, group in groupby(sorted(told, key=lambda each: each[1:3]), key=lambda each: each[1:3]):
        order = [generation for _, _, _, generation in group]
        _require(world, order == sorted(order), f"events of {where} stand in another order than its moves")


def check_streams(world: World, *, restored: bool = False) -> None:
    """Invariant 1, from outbox to raw streams: each is the outbox's beginning, each event once."""
    facts = [(fact.sequence, fact.id) for fact in outbox(world)]
    for which in world.bus.logs:
        if restored and which != world.stream():
            continue  # it tells of a history that the restored database does not have
        events = [(event.sequence, event.id) for event in stream(world, which)]
        _require(
            world, events == facts[: len(events)], f"{which.name} is not the outbox's beginning: {events}"
        )
    newest = [(event.sequence, event.id) for event in stream(world)]
    _require(world, newest == facts, f"{world.stream().name} has {len(newest)} of {len(facts)} events")


def quiet(world: World) -> bool:
    """`relayed`, on the way to which no stream was begun without need."""
    check_incarnations(world)
    return relayed(world)


def check_incarnations(world: World, *, adopted: int = 0) -> None:
    """A stream is begun anew only where one had lost something, or a person said so."""
    begun = world.stream().incarnation - 1
    _require(world, begun <= world.losses + adopted, f"{begun} new streams after {world.losses} losses")


def check_mark(world: World) -> None:
    """At any moment: what the database calls relayed had been in the stream."""
    incarnation, relayed, relayed_id = world.connection.execute(
        "SELECT incarnation, relayed_sequence, relayed_id FROM podium"
    ).fetchone()
    if relayed and not world.losses:
        there = {(e.sequence, e.id) for e in stream(world, Stream(world.database_id, incarnation))}
        _require(world, (relayed, relayed_id) in there, f"event {relayed} is marked and was not published")


def _require(world: World, holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"{what}\n{world.story()}")
