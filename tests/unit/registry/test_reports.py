"""What an evaluation report must say, and what is said when it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidContent
from registry.reports import Report, read_report

DIGEST = "sha256:" + "a" * 64
ACCURACY = {"value": 0.8, "base": 0.5, "higher_is_better": True, "n": 2}
DOCUMENT = {
    "schema": 1,
    "subject": {"digest": DIGEST},
    "dataset": {"digest": DIGEST, "ref": "held-out:v1"},
    "metrics": {"accuracy": ACCURACY},
}


def read(document: Any = DOCUMENT, examples: str | None = None) -> Report:
    files = {"report.json": json.dumps(document).encode()}
    if examples is not None:
        files["examples.jsonl"] = examples.encode()
    return read_report(files.get)


def with_metric(**changes: Any) -> Mapping[str, Any]:
    return {**DOCUMENT, "metrics": {"accuracy": {**ACCURACY, **changes}}}


def test_a_report_gives_its_metrics_and_the_scores_of_each_example() -> None:
    report = read(examples='{"id": "a", "accuracy": 1, "base_accuracy": 0}\n\n{"id": "b", "accuracy": 0.5}\n')
    assert report.document.metrics["accuracy"].value == 0.8
    assert report.tuned == {"accuracy": {"a": 1.0, "b": 0.5}}
    assert report.base == {"accuracy": {"a": 0.0}}


def test_example_scores_may_be_left_out() -> None:
    assert read().tuned == {}


def test_fields_that_podium_does_not_know_are_ignored() -> None:
    assert read({**DOCUMENT, "seed": 7}).document.dataset.ref == "held-out:v1"


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "report.json"),
        ({**DOCUMENT, "schema": 2}, "schema"),
        ({**DOCUMENT, "metrics": {}}, "metrics"),
        ({**DOCUMENT, "metrics": {"": ACCURACY}}, "metrics"),
        ({**DOCUMENT, "metrics": {"a\0": ACCURACY}}, "metrics"),
        ({**DOCUMENT, "subject": {"digest": "v7"}}, "subject.digest"),
        ({key: DOCUMENT[key] for key in ("schema", "subject", "metrics")}, "dataset"),
        (with_metric(value="good"), "metrics.accuracy.value"),
        (with_metric(value=float("nan")), "metrics.accuracy.value"),
        (with_metric(value=float("inf")), "metrics.accuracy.value"),
        (with_metric(base=float("nan")), "metrics.accuracy.base"),
        (with_metric(n=-1), "metrics.accuracy.n"),
        (with_metric(higher_is_better=None), "metrics.accuracy.higher_is_better"),
    ],
)
def test_a_report_that_lacks_something_is_refused_by_the_name_of_the_field(document: Any, field: str) -> None:
    with pytest.raises(InvalidContent) as refusal:
        read(document)
    assert field in refusal.value.message
    assert "README" in refusal.value.remedy


def test_a_report_without_its_document_is_refused() -> None:
    with pytest.raises(InvalidContent, match=r"report\.json"):
        read_report({}.get)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 has no 'id'"),
        ("[" * 100_000, "line 2 is not JSON"),
        ('{"id": "\\ud800", "accuracy": 1}', "the 'id' in line 2 is no text"),
        ('{"id": "\\u0000", "accuracy": 1}', "the 'id' in line 2 is no text"),
        ('{"accuracy": 1}', "line 2 has no 'id'"),
        ('{"id": 7}', "line 2 has no 'id'"),
        ('{"id": "b", "accuracy": "1"}', "line 2: 'accuracy' is not a number"),
        ('{"id": "b", "accuracy": true}', "line 2: 'accuracy' is not a number"),
        ('{"id": "b", "accuracy": NaN}', "line 2: 'accuracy' is not a number"),
        ('{"id": "b", "base_accuracy": Infinity}', "line 2: 'base_accuracy' is not a number"),
        ('{"id": "a", "accuracy": 0}', "line 2 repeats the id 'a'"),
    ],
)
def test_an_example_that_cannot_be_read_is_refused_by_its_line(line: str, problem: str) -> None:
    with pytest.raises(InvalidContent, match=problem) as refusal:
        read(examples='{"id": "a", "accuracy": 1}\n' + line)
    assert "README" in refusal.value.remedy


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_a_report_or_are_refused(document: bytes, examples: bytes) -> None:
    for files in (
        {"report.json": document},
        {"report.json": json.dumps(DOCUMENT).encode(), "examples.jsonl": examples},
    ):
        try:
            read_report(files.get)
        except InvalidContent as refusal:
            assert refusal.message
