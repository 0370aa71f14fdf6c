"""A report for people: a table as Markdown and a picture as SVG, beside the numbers for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _BAR, _LABEL = 520, 16, 110  # pixels: of the picture, of a bar's height, of the column of labels
_BASE, _TUNED = "#b8bfc9", "#2f6fde"


def as_markdown(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Scores of base and tuned by metric, and where labels are judged the share of right ones by label."""
    subject, data = _name(summary["subject"]), summary["dataset"]
    compared = summary["comparison"] or {}
    lines = [
        f"# {subject} on {_name(data)} ({data['split']})",
        "",
        "| metric | base | tuned | difference, 95 % | p | examples |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, metric in summary["metrics"].items():
        base = "-" if metric["base"] is None else f"{metric['base']:.3f}"
        between, p = _compared(compared.get(name))
        lines.append(f"| {name} | {base} | {metric['value']:.3f} | {between} | {p} | {metric['n']} |")
    shares = by_label(rows)
    if shares:
        lines += ["", "| label | base | tuned | examples |", "|---|--:|--:|--:|"]
        lines += [f"| {label} | {_share(b)} | {_share(t)} | {n} |" for label, b, t, n in shares]
    return "\n".join(lines) + "\n"


def as_svg(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Bars of base and tuned: the share of right answers by label, or the scores where there are none."""
    shares = by_label(rows)
    if shares:
        title, bars = "right answers by label", [(label, base, tuned) for label, base, tuned, _ in shares]
    else:
        scores = summary["metrics"].items()
        title, bars = "scores", [(name, each["base"], each["value"]) for name, each in scores]
    most = max([1e-9, *(value for _, *both in bars for value in both if value is not None)])
    drawn = [_bars(index, *each, most) for index, each in enumerate(bars)]
    height = 40 + len(bars) * (2 * _BAR + 10)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" role="img">'
        f"<title>{escape(_name(summary['subject']))}: {title}, base (grey) and tuned (blue)</title>"
        f'<text x="0" y="16" font-weight="bold">{title}: base (grey), tuned (blue)</text>'
        f"{''.join(drawn)}</svg>\n"
    )


def by_label(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, float | None, float, int]]:
    """Label, the base's and the tuned model's share of right answers, and how many examples there are."""
    if not rows or "accuracy" not in rows[0]:
        return []
    counts = Counter(row["expected"] for row in rows)
    tuned: Counter[str] = Counter()
    base: Counter[str] = Counter()
    for row in rows:
        tuned[row["expected"]] += row["accuracy"]
        base[row["expected"]] += row.get("base_accuracy", 0)
    has_base = "base_accuracy" in rows[0]
    return [
        (label, base[label] / count if has_base else None, tuned[label] / count, count)
        for label, count in sorted(counts.items())
    ]


def _bars(index: int, label: str, base: float | None, tuned: float, most: float) -> str:
    top = 30 + index * (2 * _BAR + 10)
    drawn = [f'<text x="0" y="{top + _BAR + 4}">{escape(label[:16])}</text>']
    for row, (value, colour) in enumerate(((base, _BASE), (tuned, _TUNED))):
        if value is None:
            continue
        y, length = top + row * _BAR, (_WIDTH - _LABEL - 50) * value / most
        drawn.append(
            f'<rect x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR - 2}" fill="{colour}"/>'
            f'<text x="{_LABEL + length + 6:.1f}" y="{y + _BAR - 4}">{value:.2f}</text>'
        )
    return "".join(drawn)


def _compared(comparison: Mapping[str, Any] | None) -> tuple[str, str]:
    if comparison is None:
        return "-", "-"
    return f"{comparison['low']:+.3f} to {comparison['high']:+.3f}", f"{comparison['p_value']:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _name(identity: Mapping[str, Any]) -> str:
    return str(identity.get("ref") or identity["digest"][:19])
