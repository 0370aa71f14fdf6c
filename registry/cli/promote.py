"""`podium promote`, `rollback`, `release`, `history`: moving aliases, and how they moved."""

from __future__ import annotations

import time
from types import EllipsisType

import click
from rich.console import RenderableType
from rich.text import Text

from registry.broker import find_broker
from registry.cli.amount import AMOUNT
from registry.cli.evidence import wait_for_evidence
from registry.cli.output import Output, counted, with_output
from registry.cli.waiting import MOST_SECONDS, UNLED_SECONDS, wait_until_live
from registry.errors import GateFailed
from registry.gates.wording import advice, evidence_names, mark, verdict_lines
from registry.references import parse_version_number
from registry.values import Promotion, Verdict

_NO_REASON = "(no reason given)"
_BROKER_SECONDS = 0.5  # to learn whether events wait; what was asked for is done by then


def _expected(_: click.Context, __: click.Parameter, text: str | None) -> int | EllipsisType | None:
    if text is None:
        return ...
    return None if text == "none" else parse_version_number(text)


def _version(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_version_number(text)


_LIVE, _EVIDENCE = "live", "evidence"
_WAIT_LIVE = click.option(
    "--wait", type=click.Choice([_LIVE]), help="Return when every deployment answers with it."
)
_WAIT = click.option(
    "--wait",
    type=click.Choice([_EVIDENCE, _LIVE]),
    multiple=True,
    help="evidence: judge when the evaluations that are under way have ended. live: return when every "
    "deployment answers with it. Both may be given.",
)
_WAIT_EVIDENCE = click.option(
    "--wait", type=click.Choice([_EVIDENCE]), help="Judge when the evaluations under way have ended."
)
_TIMEOUT = click.option(
    "--timeout",
    type=AMOUNT,
    help=f"Seconds to wait at most: {MOST_SECONDS:g} unless given, {UNLED_SECONDS:g} for what nobody serves.",
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
    wait: tuple[str, ...],
    timeout: float | None,
) -> None:
    """Move ALIAS to the version REFERENCE, behind the alias's gates, in one transaction."""
    begun = time.monotonic()
    if _EVIDENCE in wait:
        wait_for_evidence(out, reference, alias, MOST_SECONDS if timeout is None else timeout)
        timeout = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
    promotion = out.registry.promotions.promote(reference, alias, expect=expect, reason=reason)
    _finish(out, promotion, _LIVE in wait, timeout)


@click.command()
@click.argument("name")
@click.argument("alias")
@click.option(
    "--to", callback=_version, metavar="vN", help="A version that held the alias; the last one unless given."
)
@_REASON
@_WAIT_LIVE
@_TIMEOUT
@with_output
def rollback(
    out: Output, name: str, alias: str, to: int | None, reason: str, wait: str | None, timeout: float | None
) -> None:
    """Go back to the last version that was live, and hold the alias against triggers."""
    promotion = out.registry.promotions.rollback(name, alias, to=to, reason=reason)
    _finish(out, promotion, wait is not None, timeout)
    out.note(f"Triggers may not move it until: podium release {name} {alias}")


def _finish(out: Output, promotion: Promotion, wait: bool, timeout: float | None) -> None:
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
    return "\n".join([*lines, *verdict_lines(promotion.verdicts)])


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
    gates = [f"{mark(v)} {v.gate}: {v.reason}" for v in p.verdicts]
    why = "\n".join([*([p.reason] if p.reason else []), *gates]) or _NO_REASON
    return [p.alias, p.generation, p.action.value, before, f"v{p.to_version}", p.actor, p.at, why]


@click.command()
@click.argument("reference")
@click.argument("alias")
@_WAIT_EVIDENCE
@_TIMEOUT
@with_output
def judge(out: Output, reference: str, alias: str, wait: str | None, timeout: float | None) -> int:
    """Ask the gates of ALIAS what they say of a version, without moving anything.

    Exit status 1 if one of them says no.
    """
    if wait:
        verdicts = wait_for_evidence(out, reference, alias, MOST_SECONDS if timeout is None else timeout)
    else:
        verdicts = out.registry.promotions.judge(reference, alias)
    out.show([_verdict_data(v) for v in verdicts], lambda: _verdicts(out, verdicts))
    if all(v.passed for v in verdicts):
        return 0
    out.note(advice(verdicts, f"{reference} {alias}"))
    return GateFailed.exit_status


def _verdict_data(v: Verdict) -> dict[str, object]:
    said = {"gate": v.gate, "rule": v.rule, "passed": v.passed, "reason": v.reason, "remedy": v.remedy}
    return {**said, "evidence": list(v.evidence), "unmeasured": v.unmeasured, "run": v.run}


def _verdicts(out: Output, verdicts: list[Verdict]) -> RenderableType:
    rows = [[Text(mark(v), _STYLES[mark(v)]), v.gate, v.reason, v.rule, _reports(v)] for v in verdicts]
    columns = ["", "gate", "found", "wanted", "evidence"]
    return out.table(columns, rows, empty="No gate guards this alias.")


_STYLES = {"passed": "green", "pending": "yellow", "FAILED": "red"}


def _reports(verdict: Verdict) -> str | None:
    return "\n".join(evidence_names(verdict)) or None
