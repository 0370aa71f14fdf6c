"""Judge a tuned model and its base on the same held-out examples.

    report = evaluate(adapter, data, base, output=folder)

The report's folder holds ``report.json`` (scores of both, and a paired test of the difference) and
``examples.jsonl`` (one line for each held-out example, so that two reports can be compared example by
example); for people ``report.md`` (the same as a table) and ``report.svg`` (a picture of it).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.artifacts import Adapter, Artifact, Dataset, Model, Report
from registry.errors import InvalidContent, InvalidInput
from registry.gates.statistics import paired_difference
from registry.settings import Settings
from trainers.parameters import check_plain
from trainers.progress import say
from trainers.recipes.amounts import Count
from trainers.recipes.content import identity, named
from trainers.recipes.examples import Example, read_examples
from trainers.recipes.picture import as_markdown, as_svg
from trainers.recipes.quiet import quiet_progress
from trainers.recipes.scoring import Scored, score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SCHEMA = 1
#: Raised when the way of scoring changes, so that no old score of a base is used with new ones of its
#: adapters.
SCORING = 1

HIGHER_IS_BETTER = {"accuracy": True, "nll": False}


def evaluate(
    subject: Adapter | Model | str | os.PathLike[str],
    data: Dataset | str | os.PathLike[str],
    base: Model | str | os.PathLike[str] | None = None,
    *,
    output: str | os.PathLike[str] = "report",
    split: str = "heldout",
    batch: Count = 16,
) -> Report:
    """Score ``subject`` and ``base`` on ``SPLIT.jsonl`` of ``data``; write a report into ``output``.

    subject: the adapter or model that is judged
    data: the data set with the examples
    base: what it is compared with; that of its lineage unless given
    split: which part of the data set, ``SPLIT.jsonl``
    batch: examples that are scored at once

    ``nll`` is the mean over examples of the expected completion's negative log-likelihood, in nats a token.
    Where the completions are labels there is also ``accuracy``: the share of examples whose expected label is
    the likeliest of all labels. An adapter needs its ``base``; a whole model may go without.

    What a base scored on a dataset is kept under ``PODIUM_HOME`` and used again, when both come from the
    registry.

    Raises ``InvalidInput`` when an adapter has no base, ``InvalidContent`` when it does not fit the base or
    the dataset has no usable split.
    """
    check_plain(evaluate, locals())
    # An example that is there twice would count twice, and its id must name one line of the report.
    examples = list({example.id: example for example in read_examples(data, split)}.values())
    is_adapter = (Path(subject) / "adapter_config.json").is_file()
    if is_adapter and base is None:
        raise InvalidInput("An adapter is judged together with its base.", remedy="Name the base model.")
    kept = _kept_scores(base, data, split)
    before = _read_scores(kept, examples)

    say(f"loading torch and transformers to judge {named(subject)} on {len(examples)} examples")
    quiet_progress()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(base if is_adapter else subject))
    model = _load(base, adapter=subject) if is_adapter else _load(subject)
    scored = score(model, tokenizer, examples, batch=batch, what=named(subject))
    if base is not None and before is not None:
        say(f"{named(base)} was scored on these examples before: its scores are used again")
    if base is not None and before is None:
        with _without_adapter(model) if is_adapter else nullcontext(_load(base)) as plain:
            before = score(
                plain, AutoTokenizer.from_pretrained(str(base)), examples, batch=batch, what=named(base)
            )
        _keep_scores(kept, examples, before)

    if not all(math.isfinite(each.nll) for each in scored):
        raise InvalidContent(f"{subject} gives no finite likelihoods: its weights are not sound.")
    none: list[Scored | None] = [None] * len(examples)
    rows = [_row(*each) for each in zip(examples, scored, before or none, strict=True)]
    summary = {
        "schema": SCHEMA,
        "evaluator": "evaluate",
        "subject": identity(subject, "adapter" if is_adapter else "model"),
        "base": None if base is None else identity(base, "model"),
        "dataset": {**identity(data, "dataset"), "split": split},
        **_summary(rows),
    }
    return _write(Path(output), summary, rows)


def _load(base: Any, *, adapter: Any = None) -> PreTrainedModel:
    """The model ready to score, with the adapter on top when there is one."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    say(f"loading {named(base)}")
    model: Any = AutoModelForCausalLM.from_pretrained(str(base), dtype="auto")
    if adapter is not None:
        try:
            model = PeftModel.from_pretrained(model, str(adapter))
        except (RuntimeError, ValueError, KeyError) as error:
            raise InvalidContent(
                f"The adapter {adapter} does not fit the base {base}: {str(error).splitlines()[0]}",
                remedy="Judge it with the base that it was trained on.",
            ) from error
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    ready: PreTrainedModel = model.to(device).eval()
    return ready


@contextmanager
def _without_adapter(model: Any) -> Iterator[Any]:
    """The model with its adapter switched off, which is the base without loading it again."""
    with model.disable_adapter():
        yield model


def _row(example: Example, ours: Scored, base: Scored | None) -> dict[str, Any]:
    """One line of ``examples.jsonl``."""
    row: dict[str, Any] = {"id": example.id, **_scores(example, ours)}
    if base is not None:
        row |= {f"base_{metric}": value for metric, value in _scores(example, base).items()}
    return row | {"prompt": example.question, "expected": example.expected, "answer": ours.answer}


def _scores(example: Example, scored: Scored) -> dict[str, float]:
    if scored.answer is None:
        return {"nll": scored.nll}
    return {"accuracy": float(scored.answer == example.expected), "nll": scored.nll}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean scores, and the paired comparison with the base where there is one."""
    metrics: dict[str, Any] = {}
    comparison: dict[str, Any] = {}
    for metric, higher_is_better in HIGHER_IS_BETTER.items():
        if metric not in rows[0]:
            continue
        ours = [row[metric] for row in rows]
        metrics[metric] = {
            "value": _mean(ours),
            "base": None,
            "higher_is_better": higher_is_better,
            "n": len(rows),
        }
        if f"base_{metric}" in rows[0]:
            base = [row[f"base_{metric}"] for row in rows]
            metrics[metric]["base"] = _mean(base)
            comparison[metric] = _compare(ours, base)
    return {"metrics": metrics, "comparison": comparison or None}


def _compare(ours: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """The mean of ``ours - base``, its 95 % interval, and how likely it is by luck."""
    found = paired_difference([our - its for our, its in zip(ours, base, strict=True)], 0.975)
    return {
        "difference": found.mean,
        "low": found.lower,
        "high": found.upper,
        "p_value": found.p_value,
        "n": found.n,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _write(output: Path, summary: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Report:
    output.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (output / "examples.jsonl").write_text("".join(lines), encoding="utf-8")
    (output / "report.json").write_text(
        json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (output / "report.md").write_text(as_markdown(summary, rows), encoding="utf-8")
    (output / "report.svg").write_text(as_svg(summary, rows), encoding="utf-8")
    return Report(output)


def _kept_scores(base: Any, data: Any, split: str) -> Path | None:
    """Where the base's scores on the split are kept; None unless both are known by digest."""
    known = [each.digest for each in (base, data) if isinstance(each, Artifact) and each.digest]
    if len(known) != 2:
        return None
    key = hashlib.sha256(json.dumps([SCORING, *known, split]).encode()).hexdigest()
    return Settings().home / "base-scores" / f"{key}.json"


def _read_scores(file: Path | None, examples: Sequence[Example]) -> list[Scored] | None:
    if file is None or not file.is_file():
        return None
    try:
        kept = {row["id"]: Scored(row["nll"], row["answer"]) for row in json.loads(file.read_text())}
        return [kept[example.id] for example in examples]
    except (ValueError, KeyError, TypeError):
        return None  # damaged: it is only a cache, and is written again


def _keep_scores(file: Path | None, examples: Sequence[Example], scored: Sequence[Scored]) -> None:
    if file is None:
        return
    rows = [{"id": example.id, **asdict(each)} for example, each in zip(examples, scored, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(rows))
    aside.replace(file)
