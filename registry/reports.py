"""What an evaluation report says: `report.json`, and the scores of single examples in `examples.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from registry.errors import InvalidContent
from registry.text import is_storable

DOCUMENT = "report.json"
EXAMPLES = "examples.jsonl"
_ABOUT_SHAPE = "See 'Reports' in the README for what a report looks like."


#: The part of a data set that gates ask about. Scores on another, such as the one that settings were chosen
#: on, are kept as the evidence of "TASK:PART", which a gate may name.
HELD_OUT = "heldout"


def evaluator_name(task: str, split: str) -> str:
    """Whose evidence a report is that ``task`` made on a part of a data set."""
    return task if split == HELD_OUT else f"{task}:{split}"


class _Judged(BaseModel):
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    ref: str | None = None


class _JudgedOn(_Judged):
    split: str = Field(default=HELD_OUT, pattern=r"^[\w.-]{1,100}$")  # which part of the data set


class _Metric(BaseModel):
    value: float = Field(allow_inf_nan=False)
    base: float | None = Field(default=None, allow_inf_nan=False)
    higher_is_better: bool
    n: int | None = Field(default=None, ge=0)


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("the name of a metric is printable text")
    return name


_MetricName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class ReportDocument(BaseModel):
    """`report.json`, schema 1. Unknown fields are kept in the file and ignored here."""

    model_config = ConfigDict(extra="ignore")

    schema_: int = Field(alias="schema", ge=1, le=1)
    subject: _Judged
    dataset: _JudgedOn
    base: _Judged | None = None
    evaluator: str = ""
    metrics: dict[_MetricName, _Metric] = Field(min_length=1)


@dataclass(frozen=True)
class Report:
    """A report as read from a folder. Example scores: metric -> example id -> score."""

    document: ReportDocument
    tuned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    base: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def read_report(read: Callable[[str], bytes | None]) -> Report:
    """Read a report through ``read``, which gives a file's bytes, or None where there is no such file.

    Raises:
        InvalidContent: it is not what a report must be; the message names the file and the field.
    """
    try:
        document = ReportDocument.model_validate_json(read(DOCUMENT) or b"")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise InvalidContent(f"{DOCUMENT}: {where}: {first['msg']}", remedy=_ABOUT_SHAPE) from error
    examples = read(EXAMPLES)
    if examples is None:
        return Report(document)
    return Report(document, *_example_scores(examples, list(document.metrics)))


def _example_scores(
    examples: bytes, metrics: list[str]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    tuned: dict[str, dict[str, float]] = {metric: {} for metric in metrics}
    base: dict[str, dict[str, float]] = {metric: {} for metric in metrics}
    for number, line in enumerate(examples.split(b"\n"), start=1):
        if not line.strip():
            continue
        example = _example(number, line)
        for metric in metrics:
            _collect(tuned[metric], number, example, metric)
            _collect(base[metric], number, example, metric, prefix="base_")
    return tuned, base


def _example(number: int, line: bytes) -> dict[str, Any]:
    try:
        example = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidContent(f"examples.jsonl: line {number} is not JSON.", remedy=_ABOUT_SHAPE) from error
    if not isinstance(example, dict) or not isinstance(example.get("id"), str):
        raise InvalidContent(f"examples.jsonl: line {number} has no 'id'.", remedy=_ABOUT_SHAPE)
    if not is_storable(example["id"]):
        raise InvalidContent(f"examples.jsonl: the 'id' in line {number} is no text.", remedy=_ABOUT_SHAPE)
    return example


def _collect(
    scores: dict[str, float], number: int, example: dict[str, Any], metric: str, prefix: str = ""
) -> None:
    score = example.get(prefix + metric)
    if score is None:
        return
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise InvalidContent(
            f"examples.jsonl: line {number}: '{prefix + metric}' is not a number.", remedy=_ABOUT_SHAPE
        )
    if example["id"] in scores:
        raise InvalidContent(
            f"examples.jsonl: line {number} repeats the id '{example['id'][:40]}'.", remedy=_ABOUT_SHAPE
        )
    scores[example["id"]] = float(score)
