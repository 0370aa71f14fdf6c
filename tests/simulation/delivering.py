"""Worlds in which events reach handlers: relay, stream, deliveries, and two consumers of which one leads."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from registry.deliveries import DeliveryState
from registry.errors import DatabaseUnavailable, DeliveryRefused
from registry.runs import RunRequest
from registry.values import Access
from tests.simulation import oracle
from tests.simulation.actors import Main, registry_of, relay, writer
from tests.simulation.beginning import beginning
from tests.simulation.broker import SharedBus
from tests.simulation.oracle import Acknowledged
from tests.simulation.process import Process
from tests.simulation.relaying import Trouble
from tests.simulation.world import FAIR, Broken, Faults, Kill, World
from triggers.consumer import run_consumer
from triggers.context import Context
from triggers.filters import OnPromotion
from triggers.received import Received
from triggers.retry import RetryPolicy
from triggers.served import Served
from triggers.subscription import Terms

CONSUMER = "apps"
EFFECT, CALL, LATEST, FAIL = "sim/effect", "sim/call", "sim/latest", "sim/fail"
_RETRIES = 3


@dataclass
class Handled:
    """What handlers did outside of the registry, in order: (subscription, event, key, attempt)."""

    calls: list[tuple[str, str, str, int]] = field(default_factory=list)
    replays: Counter[str] = field(default_factory=Counter)  # event -> replays that somebody was promised

    def note(self, context: Context) -> None:
        event = context.delivery.event
        self.calls.append((context.subscription, event.id, event.key, context.attempt))


def subscriptions(handled: Handled) -> Sequence[Served]:
    """One of each sort: an effect in the registry, a call outside, only the newest, and one that fails."""

    def effect(event: Received[Any], context: Context) -> None:
        with context.transaction() as registry:
            registry.runs.queue(RunRequest(task="sim", arguments={"event": event.id}))

    def call(event: Received[Any], context: Context) -> None:
        handled.note(context)

    def latest(event: Received[Any], context: Context) -> None:
        handled.note(context)

    def fail(event: Received[Any], context: Context) -> None:
        handled.note(context)
        # 0: it fails at the first attempt, 1: at every one.
        trouble = (event.data.generation + event.data.to_version) % 4
        if trouble == 1 or (trouble == 0 and context.attempt == 1):
            raise ValueError("it does not like this event")

    return tuple(
        Served(name, Terms(OnPromotion(), access, RetryPolicy(_RETRIES, 0.2)), handle)
        for name, access, handle in (
            (EFFECT, Access.EACH, effect),
            (CALL, Access.EACH, call),
            (LATEST, Access.LATEST, latest),
            (FAIL, Access.EACH, fail),
        )
    )


def consumer(served: Sequence[Served]) -> Main:
    """Records and executes deliveries whenever it leads."""

    async def main(process: Process) -> None:
        registry, bus = registry_of(process, "system:up"), SharedBus(process)

        def report(line: str, *, healthy: bool = True) -> None:
            process.world.note(f"{process.name}: {line}")

        while True:
            with suppress(DatabaseUnavailable):
                await run_consumer(registry, bus, CONSUMER, lambda: served, asyncio.Event(), report)
            await asyncio.sleep(0.1)

    return main


def replayer(handled: Handled, count: int) -> Main:
    """Asks for some events again, and for another try of what is dead."""

    async def main(process: Process) -> None:
        registry, world = registry_of(process), process.world
        for _ in range(count):
            await asyncio.sleep(world.random.uniform(0, world.term))
            moves = [fact for fact in oracle.outbox(world) if fact.type == oracle.MOVES[0]]
            with suppress(DatabaseUnavailable):
                if moves and world.happens(0.5):
                    chosen = world.random.choice(moves).id
                    event = await process(lambda chosen=chosen: registry.events.get(chosen))
                    handled.replays[event.id] += 0  # perhaps, from here on
                    await process(lambda event=event: registry.deliveries.replay(event, EFFECT))
                    handled.replays[event.id] += 1
                for dead in await process(lambda: registry.deliveries.find(state=DeliveryState.DEAD)):
                    with suppress(DeliveryRefused):
                        await process(lambda dead=dead: registry.deliveries.retry(dead.id))

    return main


def play(
    seed: int = 0,
    *,
    faults: Faults = FAIR,
    kill: Kill | None = None,
    moves: int = 5,
    consumers: int = 2,
    replays: int = 0,
    trouble: Trouble | None = None,
) -> World:
    """Run one schedule to its quiet end and check it. Raises `world.Broken`."""
    world = World(beginning(), seed=seed, kill=kill)
    acknowledged, handled = Acknowledged(), Handled()
    served = subscriptions(handled)

    async def main() -> None:
        for number in range(consumers):
            world.start(f"consumer-{number}", consumer(served))
        world.start("relay", relay())
        await world.until(lambda: len(since(world)) == len(served), "the subscriptions' beginning")
        world.faults = faults
        names = ["writer-0", "writer-1"]
        for name in names:
            world.start(name, writer(acknowledged, moves))
        if replays:
            names.append("replayer")
            world.start("replayer", replayer(handled, replays))
        if trouble is not None:
            await trouble(world)
        await world.until(lambda: world.ended(names), "the writers' end")
        world.heal()
        await world.until(lambda: oracle.quiet(world) and settled(world), "an end of each delivery")

    world.run(main())
    oracle.check_promotions(world, acknowledged)
    oracle.check_streams(world)
    check_deliveries(world)
    check_effects(world, handled)
    check_calls(world, handled, in_order=not faults.pause)
    return world


# The oracle


def since(world: World) -> dict[str, int]:
    """The sequence behind which events are for each subscription."""
    rows = world.connection.execute("SELECT name, since FROM subscription WHERE consumer = ?", (CONSUMER,))
    return dict(rows.fetchall())


def settled(world: World) -> bool:
    """Whether everything in the outbox was looked at, and no delivery is open."""
    (newest,) = world.connection.execute("SELECT event_sequence FROM podium").fetchone()
    (cursor,) = world.connection.execute("SELECT sequence FROM consumer").fetchone()
    (is_open,) = world.connection.execute(
        "SELECT COUNT(*) FROM delivery WHERE state IN ('pending', 'running', 'held')"
    ).fetchone()
    return bool(cursor == newest and not is_open)


def promotions(world: World, subscription: str) -> list[oracle.Fact]:
    """The events that are for a subscription, in their order."""
    first = since(world)[subscription]
    return [f for f in oracle.outbox(world) if f.type == oracle.MOVES[0] and f.sequence > first]


def check_deliveries(world: World) -> None:
    """Each event has one delivery of its own at each subscription, ended as it may end."""
    for name in (EFFECT, CALL, LATEST, FAIL):
        rows = world.connection.execute(
            "SELECT event.id, state, attempts FROM delivery JOIN event ON event.sequence = event_sequence"
            " WHERE subscription = ? AND replay = 0",
            (name,),
        ).fetchall()
        wanted = Counter(fact.id for fact in promotions(world, name))
        _require(world, Counter(row[0] for row in rows) == wanted, f"deliveries of {name}: {rows}")
        allowed = {"done"} | {LATEST: {"superseded"}, FAIL: {"dead"}}.get(name, set())
        _require(world, {row[1] for row in rows} <= allowed, f"{name} ended as {rows}")


def check_effects(world: World, handled: Handled) -> None:
    """What a handler writes with its delivery is written once for each event, in order of each artifact."""
    rows = world.connection.execute(
        "SELECT json_extract(r.arguments, '$.event'), cause.key, cause.sequence, queued.sequence FROM run r"
        " JOIN event cause ON cause.id = json_extract(r.arguments, '$.event')"
        " JOIN event queued ON queued.subject = 'run/' || r.id AND queued.type = 'podium.run.queued'"
        " ORDER BY queued.sequence"
    ).fetchall()
    counts = Counter(row[0] for row in rows)
    own = {fact.id for fact in promotions(world, EFFECT)}
    for event in own:
        _require(world, counts[event] >= 1, f"event {event} had no effect")
    recorded: Counter[str] = Counter()
    for event, count in world.connection.execute(
        "SELECT event.id, COUNT(*) FROM delivery JOIN event ON event.sequence = event_sequence"
        " WHERE subscription = ? GROUP BY event.id",
        (EFFECT,),
    ):
        recorded[event] = count
    _require(world, counts == recorded, f"effects {counts}, deliveries {recorded}")
    for event, promised in handled.replays.items():
        replayed = recorded[event] - (event in own)
        _require(world, replayed >= promised, f"a replay of {event} was promised and is not there")
    first: dict[str, int] = {}
    order: dict[str, list[int]] = defaultdict(list)
    for event, key, sequence, _ in rows:
        if event not in first and not handled.replays[event]:
            first[event] = sequence
            order[key].append(sequence)
    for key, sequences in order.items():
        _require(world, sequences == sorted(sequences), f"effects of {key} out of order: {sequences}")


def check_calls(world: World, handled: Handled, *, in_order: bool) -> None:
    """Every event reaches a handler outside of the registry; the newest one, where only that counts."""
    sequences = {fact.id: fact.sequence for fact in oracle.outbox(world)}
    keys = {fact.id: fact.key for fact in oracle.outbox(world)}
    for name in (CALL, LATEST, FAIL):
        called = [event for subscription, event, _, _ in handled.calls if subscription == name]
        wanted = {fact.id for fact in promotions(world, name)}
        if name == LATEST:
            newest = {keys[event]: event for event in sorted(wanted, key=sequences.__getitem__)}
            _require(world, set(newest.values()) <= set(called), "the newest event was not handled")
        else:
            _require(
                world, set(called) == wanted, f"{name} was called for {len(set(called))} of {len(wanted)}"
            )
        if in_order:
            _check_order(world, name, [(keys[event], sequences[event]) for event in called])


def _check_order(world: World, name: str, calls: Sequence[tuple[str, int]]) -> None:
    at: dict[str, int] = defaultdict(int)
    for key, sequence in calls:
        if name == FAIL:
            continue  # a dead delivery that is tried again comes after those that it kept waiting
        _require(world, sequence >= at[key], f"{name}: {key} went back to {sequence} from {at[key]}")
        at[key] = sequence


def _require(world: World, holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"{what}\n{world.story()}")
