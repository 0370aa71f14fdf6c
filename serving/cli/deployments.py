"""`podium deployments`: what is served, and what a person may tell it."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, ago, with_output
from registry.deployments import BASE, Rollout, RolloutState
from registry.errors import InvalidInput, NotFound, Refused
from registry.operations import Intent
from serving.cli.keys import keys
from serving.cli.restarting import MOST_SECONDS, wait_until_restarted
from serving.overview import Overview, State, overview, overviews

__all__ = ["deployments"]

_STYLES = {
    State.LIVE: "green",
    State.ROLLING: "cyan",
    State.FAILED: "red",
    State.DOWN: "bold red",
    State.PAUSED: "yellow",
    State.WAITING: "yellow",
    State.STOPPED: "yellow",
    State.UNLED: "yellow",
}
_ROLLOUT_STYLES = {RolloutState.LIVE: "green", RolloutState.FAILED: "red", RolloutState.STARTED: "cyan"}
_HOLDS = {True: "yes", False: "no", None: "unknown"}
_SHORTEST_DIGEST = 8  # hexadecimal digits


@click.group()
def deployments() -> None:
    """Look at what is served, and pause, resume, restart or unblock it."""


deployments.add_command(keys)


@deployments.command("list")
@with_output
def list_(out: Output) -> None:
    """List deployments: what each name follows, and what answers it."""
    found = overviews(out.registry)
    out.show([each.to_json() for each in found], lambda: out.page(_list_page(out, found)))


def _list_page(out: Output, found: list[Overview]) -> Iterable[RenderableType]:
    columns = ["deployment", "state", "base", "names", ">replicas", "address"]
    yield out.table(
        columns,
        [_row(each) for each in found],
        empty="Nothing is deployed: see 'podium deploy --help'.",
    )
    for each in found:
        if each.remark:
            yield Text(f"{each.name} is {each.state}: {each.remark}")


def _row(seen: Overview) -> list[object]:
    names = [f"{served} = {_live(seen, served) or '-'}" for served in seen.follows if served != BASE]
    return [
        seen.name,
        _state(seen),
        _live(seen, BASE),
        "\n".join(names) or None,
        f"{seen.ready}/{seen.wanted_replicas}",
        seen.address,
    ]


def _state(seen: Overview) -> Text:
    return Text(seen.state.value, _STYLES.get(seen.state, ""))


def _live(seen: Overview, served: str) -> str | None:
    route = seen.table.routes.get(served)
    return route.current.ref if route else None


@deployments.command()
@click.argument("name")
@with_output
def show(out: Output, name: str) -> None:
    """Show a deployment: its names, replicas, conditions, blocks and last rollouts."""
    seen = overview(out.registry, name)
    out.show(seen.to_json(), lambda: out.page(_page(out, seen)))


def _page(out: Output, seen: Overview) -> Iterable[RenderableType]:
    yield out.facts(_facts(seen))
    yield out.table(
        ["name", "follows", "wanted", "live", "kept", "last rollout"],
        [_name_row(seen, served, text) for served, text in seen.follows.items()],
    )
    yield _replica_table(out, seen)
    rows = [[c.type.value, _HOLDS[c.holds], c.since, c.reason or None] for c in seen.conditions]
    yield out.table(["condition", "holds", "since", "why"], rows)
    if seen.blocks:
        yield _block_table(out, seen)
    yield out.table(
        ["rollout", "name", "state", "began", ">seconds", "why"],
        [_rollout_row(rollout) for rollout in seen.rollouts],
        empty="Nothing was rolled out yet.",
    )


def _replica_table(out: Output, seen: Overview) -> RenderableType:
    rows = [
        [
            r.index,
            r.phase,
            r.base,
            "\n".join(r.models) or None,
            sum(r.in_flight.values()),
            r.boot and r.boot[:8],
            r.at,
            r.detail or None,
        ]
        for r in seen.replicas
        if r.phase != "absent" or r.detail  # absent ones are places in which others may be started
    ]
    columns = [">replica", "phase", "base", "versions", ">in flight", "boot", "since", "detail"]
    return out.table(columns, rows, empty="It has no replicas.")


def _block_table(out: Output, seen: Overview) -> RenderableType:
    rows = [
        [seen.content_name(b.digest), seen.content_name(b.base_digest), b.at, b.reason] for b in seen.blocks
    ]
    return out.table(["blocked", "on", "since", "why"], rows)


def _facts(seen: Overview) -> Iterable[tuple[str, object]]:
    yield "deployment", seen.name
    yield "app", seen.declared.app if seen.declared else "- (in the foreground, or no longer declared)"
    yield "state", seen.state.value + (f": {seen.remark}" if seen.remark else "")
    if seen.is_declared_paused:
        yield "paused", "by its declaration"
    elif seen.intent.paused:
        since = ago(seen.intent.at) if seen.intent.at else ""
        why = f": {seen.intent.reason}" if seen.intent.reason else ""
        yield "paused", f"{since} by {seen.intent.by}{why}"
    yield "address", seen.address
    yield "keys", _keys(seen)


def _keys(seen: Overview) -> str:
    keys = seen.table.keys
    if keys is None and not seen.is_public:
        return "nobody needs one"
    return f"{len(keys)} good" if keys else "none is good, so nobody is answered"


def _name_row(seen: Overview, served: str, reference: str) -> list[object]:
    route, latest = seen.table.routes.get(served), seen.latest.get(served)
    kept = route.previous.ref if route and route.previous else None
    state = Text(latest.state.value, _ROLLOUT_STYLES.get(latest.state, "")) if latest else None
    live = _live(seen, served)
    if live and not seen.is_led:
        live = f"was {live}"
    return [served or "(base)", reference, seen.wanted.get(served), live, kept, state]


def _rollout_row(rollout: Rollout) -> list[object]:
    took = (rollout.ended_at - rollout.started_at).total_seconds() if rollout.ended_at else None
    return [
        rollout.target.ref,
        rollout.target.served or "(base)",
        Text(rollout.state.value, _ROLLOUT_STYLES.get(rollout.state, "")),
        rollout.started_at,
        None if took is None else f"{took:.1f}",
        rollout.reason or None,
    ]


@deployments.command()
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; 'podium deployments show' says it.")
@with_output
def pause(out: Output, name: str, reason: str) -> None:
    """Roll nothing new out in NAME; what serves goes on, and is kept up."""
    before = out.registry.operations.intent(name)
    told = out.registry.operations.pause(name, reason)
    words = "is paused already" if before.paused else "is paused: nothing new is rolled out"
    out.show(_told(told), lambda: f"{name} {words} until 'podium deployments resume {name}'.")


@deployments.command()
@click.argument("name")
@with_output
def resume(out: Output, name: str) -> None:
    """Let NAME follow its references again."""
    was_paused = out.registry.operations.intent(name).paused
    told = out.registry.operations.resume(name)
    if overview(out.registry, name).is_declared_paused:
        raise Refused(
            f"{name} stays paused: its declaration says paused=True.",
            remedy="Take that out of its file, and run 'podium deploy'.",
        )
    words = "follows its references again" if was_paused else "is not paused"
    out.show(_told(told), lambda: f"{name} {words}.")


@deployments.command()
@click.argument("name")
@click.option("--wait", is_flag=True, help="Return when all its replicas are new ones and answer.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=MOST_SECONDS,
    metavar="SECONDS",
    help=f"To wait at most; {MOST_SECONDS:g} unless given.",
)
@with_output
def restart(out: Output, name: str, wait: bool, timeout: float) -> None:
    """Replace the processes of NAME by new ones, and try again what failed last."""
    seen = overview(out.registry, name)
    told = out.registry.operations.restart(name)
    how = f"{name}: {_how_restarted(seen)}"
    if not wait:
        out.show(_told(told), lambda: how)
        return
    out.note(how)
    ready = wait_until_restarted(out, name, timeout).ready
    out.show(_told(told), lambda: f"{name}: {ready} of {ready} replicas are new, and answer.")


def _how_restarted(seen: Overview) -> str:
    if seen.is_paused:
        return "its processes are replaced when it is resumed: it is paused."
    if not seen.replicas:
        return "nothing runs yet; it begins with new processes."
    if any(r.address and r.address != r.endpoint for r in seen.replicas):
        return "new processes take the place of the old ones, behind its proxy: no answer is dropped."
    return "its one process is drained and started again: until it is ready, nobody is answered."


@deployments.command()
@click.argument("name")
@click.argument("content", metavar="REF|DIGEST")
@with_output
def unblock(out: Output, name: str, content: str) -> None:
    """Let NAME try a version again that it has blocked, at once where it is still asked for."""
    seen = overview(out.registry, name)
    digest = _digest_of(out, seen, content)
    blocks = out.registry.operations.unblock(name, digest)
    data = {"deployment": name, "digest": digest, "was": [block.reason for block in blocks]}
    out.show(
        data, lambda: f"{name} may try {seen.content_name(digest)} again. It was blocked: {blocks[0].reason}"
    )


def _digest_of(out: Output, seen: Overview, content: str) -> str:
    """The digest that a reference, or the beginning of a digest, means; raises `NotFound`, `InvalidInput`."""
    hexadecimal = content.removeprefix("sha256:")
    if (":" in content and not content.startswith("sha256:")) or "@" in content:
        return out.registry.catalog.resolve(content).digest
    if len(hexadecimal) < _SHORTEST_DIGEST or not set(hexadecimal) <= set("0123456789abcdef"):
        raise InvalidInput(
            f"'{content[:80]}' is no reference to a version and no digest.",
            remedy=f"Write NAME:v7, or at least {_SHORTEST_DIGEST} digits of the digest.",
        )
    found = {b.digest for b in seen.blocks if b.digest.removeprefix("sha256:").startswith(hexadecimal)}
    if len(found) > 1:
        raise InvalidInput(f"'{content}' is the beginning of several digests.", remedy="Write more of it.")
    if not found:
        raise NotFound(
            f"Deployment '{seen.name}' blocks no content {content[:80]}.",
            remedy=f"'podium deployments show {seen.name}' lists what it blocks.",
        )
    return found.pop()


def _told(intent: Intent) -> dict[str, object]:
    return {
        "deployment": intent.deployment,
        "paused": intent.paused,
        "reason": intent.reason,
        "by": intent.by,
        "restarts": intent.restarts,
    }
