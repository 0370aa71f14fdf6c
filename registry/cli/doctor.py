"""`podium doctor`: what is installed, what is reachable, what is wrong."""

from __future__ import annotations

import click

from registry.cli.output import Output, with_output
from registry.doctor import Finding, examine


@click.command()
@with_output
def doctor(out: Output) -> int:
    """Check the settings, the database, the store, NATS, and what is installed."""
    findings = examine()
    rows = [[_mark(finding), finding.part, finding.says, finding.remedy or None] for finding in findings]
    data = [{"part": f.part, "ok": f.ok, "says": f.says, "remedy": f.remedy} for f in findings]
    out.show(data, lambda: out.table(["", "part", "says", "what to do"], rows))
    return 0 if all(finding.ok for finding in findings if finding.needed) else 3


def _mark(finding: Finding) -> str:
    return "ok" if finding.ok else "WRONG" if finding.needed else "no"
