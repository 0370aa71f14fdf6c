"""A report for people: a table as Markdown and a picture as SVG, beside the numbers for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _BAR, _GAP = 640, 14, 12  # pixels: of the picture, of a bar's height, between two pairs of bars
_LEFT, _RIGHT = 140, 60  # pixels: of the column of labels, and of the longest number behind a bar
_LENGTH = _WIDTH - _LEFT - _RIGHT  # of the longest bar
_LINE = 18  # pixels from one line of text to the next
_BASE, _TUNED, _INK, _FAINT = "#a3abb8", "#2f6fde", "#1f2733", "#dfe3e9"
_LONGEST = 16  # characters of a label
_SURE = 0.05  # a p-value below it is called a difference


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
    """What was found, in words, above bars of base and tuned.

    The bars are shares of right answers by label, on a scale from 0 to 100 %; the scores where there are no
    labels.
    """
    shares = by_label(rows)
    if shares:
        bars = [(f"{_short(label)} ({n})", base, tuned) for label, base, tuned, n in shares]
        title, most = "right answers by label (examples)", 1.0
    else:
        bars = [(name, each["base"], each["value"]) for name, each in summary["metrics"].items()]
        title = "scores"
        most = max([1e-9, *(value for _, *both in bars for value in both if value is not None)])
    found = [_finding(name, metric, summary) for name, metric in summary["metrics"].items()]
    heading = f"{_name(summary['subject'])} on {_name(summary['dataset'])} ({summary['dataset']['split']})"
    top = 30 + _LINE * len(found) + 44
    bottom = top + len(bars) * (2 * _BAR + _GAP)
    height = bottom + (26 if shares else 8)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 {_WIDTH + 24} {height}" '
        f'width="{_WIDTH + 24}" height="{height}" role="img" fill="{_INK}" '
        f'font-family="system-ui, sans-serif" font-size="12" '
        f'style="background:#fff"><title>{escape(heading)}: {escape("; ".join(found))}</title>',
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(heading)}</text>',
        *(f'<text x="0" y="{40 + _LINE * i}">{escape(line)}</text>' for i, line in enumerate(found)),
        _legend(title, top - 18, with_base=any(base is not None for _, base, _ in bars)),
        _scale(top - 6, bottom) if shares else "",
        *(_bars(top, index, *each, most, percent=bool(shares)) for index, each in enumerate(bars)),
        "</svg>",
    ]
    return "".join(parts) + "\n"


def _finding(name: str, metric: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """As in ``accuracy 0.292 -> 0.325: better (+0.033, 95 % between +0.001 and +0.075, p 0.012)``."""
    compared = (summary["comparison"] or {}).get(name)
    if compared is None:
        return f"{name} {metric['value']:.3f}"
    better = (compared["difference"] > 0) == metric["higher_is_better"]
    verdict = "no sure difference" if compared["p_value"] >= _SURE else "better" if better else "worse"
    between, p = _compared(compared)
    return (
        f"{name} {metric['base']:.3f} → {metric['value']:.3f}: {verdict} "
        f"({compared['difference']:+.3f}, 95 % {between}, p {p}, {metric['n']} examples)"
    )


def _legend(title: str, y: int, *, with_base: bool) -> str:
    keys = [("base", _BASE), ("tuned", _TUNED)] if with_base else [("tuned", _TUNED)]
    left = _WIDTH - 60 * len(keys)
    drawn = [f'<text x="0" y="{y}" font-weight="600">{escape(title)}</text>']
    for index, (word, colour) in enumerate(keys):
        x = left + 60 * index
        drawn.append(
            f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{colour}"/><text x="{x + 10}" y="{y}">{word}</text>'
        )
    return "".join(drawn)


def _scale(top: int, bottom: int) -> str:
    """Lines at each quarter, with their percentages below."""
    drawn = []
    for quarter in range(5):
        x = _LEFT + _LENGTH * quarter / 4
        drawn.append(
            f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{_FAINT}"/>'
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#667085">{25 * quarter} %</text>'
        )
    return "".join(drawn)


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


def _bars(
    top: int, index: int, label: str, base: float | None, tuned: float, most: float, *, percent: bool
) -> str:
    at = top + index * (2 * _BAR + _GAP)
    drawn = [f'<text x="{_LEFT - 10}" y="{at + _BAR + 4}" text-anchor="end">{escape(label)}</text>']
    for row, (value, colour) in enumerate(((base, _BASE), (tuned, _TUNED))):
        if value is None:
            continue
        y, length = at + row * _BAR, _LENGTH * max(0.0, value) / most
        said = f"{value:.0%}".replace("%", " %") if percent else f"{value:.3f}"
        drawn.append(
            f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR - 2}" rx="2" fill="{colour}"/>'
            f'<text x="{_LEFT + length + 6:.1f}" y="{y + _BAR - 4}" font-size="11">{said}</text>'
        )
    return "".join(drawn)


def _short(label: str) -> str:
    """A label that fits into its column."""
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


def _compared(comparison: Mapping[str, Any] | None) -> tuple[str, str]:
    if comparison is None:
        return "-", "-"
    return f"{comparison['low']:+.3f} to {comparison['high']:+.3f}", f"{comparison['p_value']:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _name(identity: Mapping[str, Any]) -> str:
    return str(identity.get("ref") or identity["digest"][:19])
