"""Verdicts as people read them: a line for each gate, and once what to do about those that say no."""

from __future__ import annotations

from collections.abc import Sequence

from registry.references import is_reference
from registry.values import Verdict

_SHOWN = 12  # digits of a value's id; commands take as many as it takes to be the only one


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Each gate: passed or failed, its name, the figure and what is wanted, and on which evidence."""
    width = max((len(v.gate) for v in verdicts), default=0)
    return [f"  {mark(v):<7}  {v.gate:<{width}}  {v.reason}{_on(v)}" for v in verdicts]


def mark(verdict: Verdict) -> str:
    """What the gate says, in a word; it says no as well while it is ``pending``."""
    if verdict.passed:
        return "passed"
    return "pending" if verdict.run else "FAILED"


def evidence_names(verdict: Verdict) -> list[str]:
    """The reports that were judged: references, and ids of those without a name shortened."""
    names = dict.fromkeys(verdict.evidence)  # a version that is judged against itself has one report
    return [name if is_reference(name) else name[:_SHOWN] for name in names]


def summary(verdicts: Sequence[Verdict]) -> str:
    """``2 of 3 gates say no``."""
    failed = sum(not v.passed for v in verdicts)
    gates = "gate says" if len(verdicts) == 1 else "gates say"
    return f"{failed} of {len(verdicts)} {gates} no"


def advice(verdicts: Sequence[Verdict], promotion: str) -> str:
    """What to do about the gates that failed: each command once. ``promotion`` is ``REFERENCE ALIAS``."""
    failed = [v for v in verdicts if not v.passed]
    commands = dict.fromkeys(v.remedy for v in failed if v.remedy and v.run is None)
    parts = [f"Run: {command}" for command in commands]
    if any(v.run for v in failed):
        parts.append(f"Wait for what is measured now: podium promote {promotion} --wait evidence")
    if any(not v.remedy for v in failed):
        parts.append(
            "Promote a version that satisfies the gates, or change them in the app file and deploy it."
        )
    return "\n".join(parts)


def _on(verdict: Verdict) -> str:
    names = evidence_names(verdict)
    return f"  ({', '.join(names)})" if names else ""
