"""The table and the picture of a report."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from typing import Any

from trainers.recipes.picture import as_markdown, as_svg, by_label

ROWS = [
    {"expected": "bug", "accuracy": 1.0, "base_accuracy": 0.0},
    {"expected": "bug", "accuracy": 1.0, "base_accuracy": 1.0},
    {"expected": "<sales>", "accuracy": 0.0, "base_accuracy": 0.0},
]


def summary(base: float | None = 0.25) -> dict[str, Any]:
    test = {"difference": 0.5, "low": 0.1, "high": 0.9, "p_value": 0.012, "n": 3}
    metric = {"value": 0.75, "base": base, "higher_is_better": True, "n": 3}
    return {
        "subject": {"digest": "sha256:" + "a" * 64, "ref": "router:v2"},
        "dataset": {"digest": "sha256:" + "b" * 64, "ref": None, "split": "heldout"},
        "metrics": {"accuracy": metric},
        "comparison": {"accuracy": test} if base is not None else None,
    }


def test_the_table_has_both_scores_what_is_between_them_and_each_label() -> None:
    table = as_markdown(summary(), ROWS)
    assert "# router:v2 on sha256:bbbbbbbbbbbb (heldout)" in table
    assert "| accuracy | 0.250 | 0.750 | +0.100 to +0.900 | 0.012 | 3 |" in table
    assert "| bug | 0.50 | 1.00 | 2 |" in table


def test_the_picture_is_sound_xml_with_a_bar_for_each_share() -> None:
    picture = xml.fromstring(as_svg(summary(), ROWS))
    bars = [float(each.attrib["width"]) for each in picture if each.tag.endswith("rect")]
    labels = [each.text for each in picture if each.tag.endswith("text")]
    assert "<sales> (1)" in labels
    assert "accuracy 0.250 → 0.750: better (+0.500, 95 % +0.100 to +0.900, p 0.012, 3 examples)" in labels
    assert (len(bars), max(bars), bars[0]) == (4, bars[3], 0.0)  # labels by name, base above tuned
    assert bars[2] == bars[3] / 2


def test_without_labels_and_without_a_base_there_is_the_score_alone() -> None:
    rows = [{"expected": "any text", "nll": 1.0}]
    assert by_label(rows) == []
    picture = xml.fromstring(as_svg(summary(base=None), rows))
    assert len([each for each in picture if each.tag.endswith("rect")]) == 1
    assert "| accuracy | - | 0.750 | - | - | 3 |" in as_markdown(summary(base=None), rows)


def test_what_may_be_luck_is_not_called_better() -> None:
    maybe = summary()
    maybe["comparison"]["accuracy"]["p_value"] = 0.2
    assert "no sure difference" in as_svg(maybe, ROWS)
    lower = summary()
    lower["metrics"]["accuracy"]["higher_is_better"] = False
    assert ": worse (" in as_svg(lower, ROWS)
