"""`podium events`, `podium dlq` and `podium subscribe`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from registry.broker import find_broker
from registry.cli.output import Output, plain, with_output
from registry.deliveries import Delivery, DeliveryState
from registry.errors import BrokerUnavailable, InvalidInput, NotFound
from registry.suggesting import did_you_mean
from registry.values import Event

_SHOWN = 12  # digits of an id in tables; commands take as many as it takes to be the only one
_FOLLOW_SECONDS = 1.0
_BROKER_SECONDS = 2.0  # to learn whether the event server answers
_LIMIT = click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))


def event_data(event: Event) -> dict[str, Any]:
    """An event as it is printed with ``--json``."""
    return {**asdict(event), "at": event.at.isoformat(), "data": dict(event.data)}


def delivery_data(delivery: Delivery) -> dict[str, Any]:
    """A delivery as it is printed with ``--json``."""
    return {
        "id": delivery.id,
        "subscription": delivery.subscription,
        "consumer": delivery.consumer,
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "replay": delivery.replay,
        "event": delivery.event.id,
        "type": delivery.event.type,
        "subject": delivery.event.subject,
        "key": delivery.event.key,
        "due_at": delivery.due_at.isoformat(),
        "created_at": delivery.created_at.isoformat(),
        "changed_at": delivery.changed_at.isoformat(),
        "error": delivery.error,
        "waits_for": delivery.waits_for,
    }


@click.group()
def events() -> None:
    """What has happened: list, follow and replay events."""


@events.command("list")
@_LIMIT
@click.option("--after", type=click.IntRange(0, 2**63 - 1), help="Events after this sequence, oldest first.")
@click.option("--type", "type_", metavar="TYPE", default="", help="As in 'alias' or 'run.failed'.")
@click.option("--of", "key", metavar="NAME", help="Of one artifact, or of run/ID.")
@click.option("--actor", metavar="ACTOR", help="By one actor, as in 'user:ada'.")
@with_output
def list_events(
    out: Output, limit: int, after: int | None, type_: str, key: str | None, actor: str | None
) -> None:
    """List the newest events, the oldest of them first."""
    events = out.registry.events
    if after is not None:
        if type_ or key or actor:
            raise InvalidInput(
                "--after goes with no filter.", remedy="Leave it out, or take --type, --of and --actor out."
            )
        found = events.after(after, limit=limit)
    else:
        wanted = f"podium.{type_.removeprefix('podium.')}" if type_ else ""
        found = events.find(type=wanted, key=key, actor=actor, limit=limit)[::-1]
    out.show([event_data(event) for event in found], lambda: _events_table(out, found))


@events.command()
@click.argument("event")
@with_output
def show(out: Output, event: str) -> None:
    """Show an event and what became of it at each subscription."""
    found = out.registry.events.get(event)
    deliveries = out.registry.deliveries.find(event=found.id)
    data = {**event_data(found), "deliveries": [delivery_data(each) for each in deliveries]}

    def human() -> RenderableType:
        from rich.json import JSON

        head = _events_table(out, [found])
        told = _deliveries_table(out, deliveries, "It was delivered to nobody.")
        return out.page([head, JSON.from_data(dict(found.data)), told])

    out.show(data, human)


@events.command()
@click.option("--lines", "-n", default=10, show_default=True, type=click.IntRange(0, 1000))
@click.option("--follow/--no-follow", default=True, help="Wait for more; Ctrl-C ends it.")
@with_output
def tail(out: Output, lines: int, follow: bool) -> None:
    """Print events as they happen, with --json one object a line."""
    for event in _tail(out, lines, follow):
        if out.as_json:
            click.echo(json.dumps(event_data(event)))
        else:
            when = event.at.astimezone().strftime("%H:%M:%S")
            what = click.style(f"{event.type.removeprefix('podium.'):<22}", bold=True)
            click.echo(f"{event.sequence:>6}  {when}  {what} {event.subject:<32} {event.actor}")


def _tail(out: Output, lines: int, follow: bool) -> Iterator[Event]:
    outbox = out.registry.events
    last = outbox.position().newest
    yield from outbox.tail(limit=lines) if lines else ()
    while follow:
        outbox.wait(last, _FOLLOW_SECONDS)
        for event in outbox.after(last):
            last = event.sequence
            yield event


@events.command()
@with_output
def status(out: Output) -> None:
    """Say how far events have been carried, what waits, and whether anybody can carry it."""
    position = out.registry.events.position()
    waiting = position.newest - position.relayed
    problem = _problem(out)
    data = {**asdict(position), "waiting": waiting, "problem": problem}
    name = f"podium-{position.database_id}-{position.incarnation}"
    said = f"{position.relayed} of {position.newest} events are in {name}; {waiting} wait."
    out.show(data, lambda: f"{said} {problem}" if problem else said)


def _problem(out: Output) -> str | None:
    """Why what comes will wait, if it will."""
    broker = find_broker(out.registry.settings)
    if broker is None:
        return "No event server runs here: what comes waits until 'podium up' runs."
    problem = broker.problem(_BROKER_SECONDS)
    return f"NATS ({broker}) does not answer ({problem}): what comes waits." if problem else None


@events.command()
@click.argument("event")
@click.option("--to", "subscription", required=True, metavar="APP/NAME", help="Subscription or trigger.")
@with_output
def replay(out: Output, event: str, subscription: str) -> None:
    """Deliver an event once more to a subscription, as a new delivery."""
    registry = out.registry
    made = registry.deliveries.replay(registry.events.get(event), subscription)
    out.show([delivery_data(each) for each in made], lambda: f"{_deliveries(made)} to {subscription}.")


@events.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_output
def adopt(out: Output, yes: bool) -> None:
    """Begin a new stream from this database, after it was restored from a backup.

    The old stream has events that this database does not. It is set aside, and a new one is filled with all
    events that the database has. What was handled before is not handled again.
    """
    if not (yes or out.as_json):
        out.confirm("Events that only the old stream has will be carried to nobody. Begin anew?")
    incarnation, note = asyncio.run(_adopt(out))
    data = {"incarnation": incarnation, "note": note}
    out.show(data, lambda: f"The stream begins anew as incarnation {incarnation}. {note}".strip())


async def _adopt(out: Output) -> tuple[int, str]:
    from triggers.adopting import adopt as begin_anew
    from triggers.connection import Connection, Role, find_address
    from triggers.jetstream import JetStreamBus

    settings = out.registry.settings
    bus = JetStreamBus(Connection(lambda: find_address(settings, Role.RELAY)))
    try:
        return await begin_anew(out.registry, bus), ""
    except BrokerUnavailable:
        note = "NATS is not reachable; if the relay stops once more, adopt again while it runs."
        return out.registry.events.position().incarnation, note
    finally:
        await bus.close()


@click.group()
def dlq() -> None:
    """Dead letters: deliveries that were given up, and the others on request."""


@dlq.command("list")
@click.option(
    "--state",
    type=click.Choice([*(state.value for state in DeliveryState), "all"]),
    default=DeliveryState.DEAD.value,
    show_default=True,
)
@click.option("--subscription", metavar="APP/NAME")
@_LIMIT
@with_output
def list_deliveries(out: Output, state: str, subscription: str | None, limit: int) -> None:
    """List deliveries, newest first."""
    wanted = None if state == "all" else DeliveryState(state)
    found = out.registry.deliveries.find(state=wanted, subscription=subscription, limit=limit)
    if subscription and not found:
        _check_known(out, subscription)
    out.show([delivery_data(each) for each in found], lambda: _deliveries_table(out, found, _none(wanted)))


def _none(state: DeliveryState | None) -> str:
    """What there is none of."""
    if state is DeliveryState.DEAD:
        return "No dead letters."
    return f"No deliveries are {state.value}." if state else "No deliveries."


def _check_known(out: Output, subscription: str) -> None:
    """Refuse a name that nothing was ever delivered to and that nobody deployed: it is a slip."""
    apps = out.registry.apps
    known = {f"{o.app}/{o.name}" for kind in ("subscription", "trigger") for o in apps.objects(kind)}
    if subscription in known or out.registry.deliveries.find(subscription=subscription, limit=1):
        return
    names = ", ".join(sorted(known)) or "none"
    raise NotFound(
        f"There is no subscription or trigger '{plain(subscription)[:200]}'.",
        remedy=did_you_mean(subscription, known, f"Deployed are: {names}."),
    )


@dlq.command("show")
@click.argument("delivery")
@with_output
def show_delivery(out: Output, delivery: str) -> None:
    """Show one delivery with the error of its last attempt."""
    found = out.registry.deliveries.get(delivery)

    def human() -> RenderableType:
        facts = [(name, value) for name, value in delivery_data(found).items() if name != "error"]
        return out.facts([*facts, ("error", found.error)])

    out.show({**delivery_data(found), "data": dict(found.event.data)}, human)


@dlq.command("retry")
@click.argument("deliveries", nargs=-1, metavar="DELIVERY...")
@click.option("--all", "every", is_flag=True, help="All that are dead.")
@with_output
def retry_deliveries(out: Output, deliveries: tuple[str, ...], every: bool) -> None:
    """Give dead deliveries a new round of attempts, under their old ids."""
    if bool(deliveries) == every:
        raise InvalidInput("Say which deliveries to retry.", remedy="Give their ids, or --all.")
    store = out.registry.deliveries
    ids = deliveries or tuple(each.id for each in store.find(state=DeliveryState.DEAD, limit=10_000))
    retried = [store.retry(each) for each in ids]
    out.show([delivery_data(each) for each in retried], lambda: f"{_deliveries(retried)} to be tried again.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_output
def subscribe(out: Output, file: Path) -> None:
    """Run the subscriptions that FILE declares, until Ctrl-C.

    They get what happens from their first start on; while they do not run, events wait for them. They are
    independent of those that were deployed.
    """
    from registry.apps.loading import load_file
    from triggers.handling import serve, subscriptions_of
    from triggers.served import serve_subscription

    loaded = load_file(file)
    declared = subscriptions_of(loaded)
    if not declared:
        raise InvalidInput(
            f"{file.name} declares no subscription.", remedy="Decorate a function with @subscribe(...)."
        )
    loaded.objects()  # refuses two of one name
    out.note(f"{loaded.app}: {', '.join(each.name for each in declared)}; Ctrl-C ends it")
    served = [serve_subscription(loaded.app, each) for each in declared]
    asyncio.run(serve(out.registry, f"file/{loaded.app}", served))


def _events_table(out: Output, found: list[Event]) -> RenderableType:
    rows = [
        [e.sequence, e.at, e.type.removeprefix("podium."), e.subject, e.actor, e.id[:_SHOWN]] for e in found
    ]
    return out.table([">#", "when", "what", "subject", "actor", "id"], rows, empty="No events.")


def _deliveries_table(out: Output, found: list[Delivery], empty: str) -> RenderableType:
    def row(d: Delivery) -> list[object]:
        ended = (d.state.value, d.attempts, d.changed_at, _first_line(d.error))
        return [d.id[:_SHOWN], d.subscription, d.event.subject, *ended]

    rows = [row(each) for each in found]
    columns = ["delivery", "subscription", "event", "state", ">attempts", "when", "error"]
    return out.table(columns, rows, empty=empty)


def _deliveries(found: Collection[Delivery]) -> str:
    return "1 delivery" if len(found) == 1 else f"{len(found)} deliveries"


def _first_line(error: str | None) -> str | None:
    lines = (error or "").strip().splitlines()
    # A traceback's last line is the one that says what happened.
    return (lines[-1] if lines and lines[0].startswith("Traceback") else lines[0])[:100] if lines else None
