"""`podium promote`, `rollback`, `release`, `history`: moving aliases, and how they moved."""

from __future__ import annotations

from types import EllipsisType

import click
from rich.console import RenderableType

from registry.broker import find_broker
from registry.cli.amount import AMOUNT
from registry.cli.output import Output, counted, with_output
from registry.cli.waiting import wait_until_live
from registry.references import parse_version_number
from registry.values import Promotion, Verdict

_BROKER_SECONDS = 0.5  # to learn whether events wait; what was asked for is done by then


def _expected(_: click.Context, __: click.Parameter, text: str | None) -> int | EllipsisType | None:
    if text is None:
        return ...
    return None if text == "none" else parse_version_number(text)


def _version(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_version_number(text)


_WAIT = click.option(
    "--wait", type=click.Choice(["live"]), help="Return when every deployment answers with it."
)
_TIMEOUT = click.option(
    "--timeout", default=600.0, show_default=True, type=AMOUNT, help="Seconds to wait at most."
)
_REASON = click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the history.")


@click.command()
@click.argument("reference")
@click.argument("alias")
@click.option("--expect", callback=_expected, metavar="vN|none", help="Only if the alias is there now.")
@_REASON
@_WAIT
@_TIMEOUT
@with_output
def promote(
    out: Output,
    reference: str,
    alias: str,
    expect: int | EllipsisType | None,
    reason: str,
    wait: str | None,
    timeout: float,
) -> None:
    """Move ALIAS to the version REFERENCE, behind the alias's gates, in one transaction."""
    promotion = out.registry.promotions.promote(reference, alias, expect=expect, reason=reason)
    _finish(out, promotion, wait, timeout)


@click.command()
@click.argument("name")
@click.argument("alias")
@click.option(
    "--to", callback=_version, metavar="vN", help="A version that held the alias; the last one unless given."
)
@_REASON
@_WAIT
@_TIMEOUT
@with_output
def rollback(
    out: Output, name: str, alias: str, to: int | None, reason: str, wait: str | None, timeout: float
) -> None:
    """Go back to the last version that was live, and hold the alias against triggers."""
    promotion = out.registry.promotions.rollback(name, alias, to=to, reason=reason)
    _finish(out, promotion, wait, timeout)
    out.note(f"Triggers may not move it until: podium release {name} {alias}")


def _finish(out: Output, promotion: Promotion, wait: str | None, timeout: float) -> None:
    """Print the move; with ``--wait live`` only after serving has made it so."""
    data = promotion.to_dict()
    waiting = _waiting_events(out) if promotion.changed else ""
    if waiting:
        data["notice"] = waiting
    if wait:
        if not out.as_json:
            out.console.print(_sentence(promotion))
        data["rollouts"] = wait_until_live(out, promotion, timeout)
        out.show(data, lambda: None)
        return
    out.show(data, lambda: _sentence(promotion))
    if waiting:
        out.note(waiting)


def _waiting_events(out: Output) -> str:
    """A sentence, if NATS does not answer. The promotion stands; what it starts comes later."""
    broker = find_broker(out.registry.settings)
    if broker is not None and broker.problem(_BROKER_SECONDS) is None:
        return ""
    position = out.registry.events.position()
    waiting = counted(position.newest - position.relayed, "event")
    if broker is None or broker.embedded:
        return f"'podium up' does not run here: until it does, {waiting} will wait to be sent."
    return f"NATS ({broker}) does not answer: until it does, {waiting} will wait to be sent."


def _sentence(promotion: Promotion) -> str:
    name = f"{promotion.artifact}:{promotion.alias}"
    if not promotion.changed:
        already = f"{name} is at v{promotion.to_version} already (generation {promotion.generation})"
        return f"{already}; nothing was changed."
    before = f"v{promotion.from_version}" if promotion.from_version else "none"
    lines = [f"{name}: {before} -> v{promotion.to_version} (generation {promotion.generation})"]
    lines += [f"  {'passed' if v.passed else 'FAILED'}  {v.gate}: {v.reason}" for v in promotion.verdicts]
    return "\n".join(lines)


@click.command()
@click.argument("name")
@click.argument("alias")
@with_output
def release(out: Output, name: str, alias: str) -> None:
    """End the hold that a rollback put on an alias, so that triggers may move it again."""
    released = out.registry.promotions.release(name, alias)
    data = {"artifact": name, "alias": alias, "version": f"v{released.version}", "held_by": released.held_by}
    out.show(data, lambda: f"{name}:{alias} is at v{released.version} and free to move.")


@click.command()
@click.argument("name")
@click.argument("alias", required=False)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10000))
@with_output
def history(out: Output, name: str, alias: str | None, limit: int) -> None:
    """List how the aliases of NAME moved: who, when, why, and what the gates said."""
    promotions = out.registry.promotions.history(name, alias, limit=limit)
    rows = [_row(promotion) for promotion in promotions]
    columns = ["alias", ">gen", "action", "from", "to", "by", "when", "why"]
    out.show(
        [p.to_dict() for p in promotions], lambda: out.table(columns, rows, empty="No alias of it has moved.")
    )


def _row(p: Promotion) -> list[object]:
    before = f"v{p.from_version}" if p.from_version else None
    passed = [f"{v.gate}: {v.reason}" for v in p.verdicts]
    why = "\n".join([*([p.reason] if p.reason else []), *passed]) or None
    return [p.alias, p.generation, p.action.value, before, f"v{p.to_version}", p.actor, p.at, why]


@click.command()
@click.argument("reference")
@click.argument("alias")
@with_output
def judge(out: Output, reference: str, alias: str) -> None:
    """Ask the gates of ALIAS what they say of a version, without moving anything."""
    verdicts = out.registry.promotions.judge(reference, alias)
    data = [{"gate": v.gate, "rule": v.rule, "passed": v.passed, "reason": v.reason} for v in verdicts]
    out.show(data, lambda: _verdicts(out, verdicts))


def _verdicts(out: Output, verdicts: list[Verdict]) -> RenderableType:
    rows = [["passed" if v.passed else "FAILED", v.gate, v.rule, v.reason] for v in verdicts]
    return out.table(["", "gate", "rule", "why"], rows, empty="No gate guards this alias.")
