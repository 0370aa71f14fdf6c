"""The card itself: front matter that the Hub reads, and text that people read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from registry.cards.front_matter import front_matter
from registry.cards.gathering import Facts, Made, Measured, gather
from registry.protocol import Registry
from registry.values import Role

_LIBRARIES = {"adapter": "peft", "model": "transformers", "checkpoint": "transformers"}
_TASKS = {"SEQ_CLS": "text-classification", "TOKEN_CLS": "token-classification"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!])")
_WORDS = {
    Role.BASE: "base",
    Role.DATA: "training data",
    Role.SUBJECT: "what it judges",
    Role.HELD_OUT: "held-out data",
    Role.PARENT: "made from",
}


def card_of(registry: Registry, reference: str) -> str:
    """The card of a version, as Markdown with YAML front matter.

    Raises:
        NotFound: there is no such version.
    """
    return render(gather(registry, reference))


def render(facts: Facts) -> str:
    """The text of a card."""
    parts = [front_matter(_data(facts)), *_text(facts)]
    return "\n".join(parts).rstrip() + "\n"


def _data(facts: Facts) -> dict[str, Any]:
    version = facts.version
    method = str(facts.config.get("peft_type", "")).lower()
    bases = facts.of(Role.BASE)
    return {
        "license": version.tags.get("license"),
        "language": version.tags.get("language"),
        "library_name": _LIBRARIES.get(version.kind),
        "pipeline_tag": _task(facts) if version.kind in _LIBRARIES else None,
        "base_model": _one_or_all(_ids(bases)),
        "base_model_relation": ("adapter" if version.kind == "adapter" else "finetune") if bases else None,
        "datasets": _ids(facts.of(Role.DATA)),
        "metrics": sorted({each.score.metric for each in facts.measured}),
        "tags": ["podium", *([method] if method else [])],
        "model-index": [_index(facts)] if facts.measured else None,
    }


def _ids(made: Iterable[Made]) -> list[str]:
    """What each is called on the Hub; where that is not known, here."""
    return list(dict.fromkeys(each.hub or each.artifact for each in made))


def _one_or_all(ids: list[str]) -> str | list[str] | None:
    return ids[0] if len(ids) == 1 else ids or None


def _task(facts: Facts) -> str:
    return _TASKS.get(str(facts.config.get("task_type")), "text-generation")


def _index(facts: Facts) -> dict[str, Any]:
    return {"name": facts.version.artifact, "results": [_result(facts, each) for each in facts.measured]}


def _result(facts: Facts, measured: Measured) -> dict[str, Any]:
    score = measured.score
    return {
        "task": {"type": _task(facts)},
        "dataset": {
            "name": measured.dataset,
            "type": measured.dataset.partition(":")[0],
            "revision": measured.dataset_digest,
        },
        "metrics": [{"type": score.metric, "value": score.value, "name": score.metric}],
    }


def _text(facts: Facts) -> Iterator[str]:
    version = facts.version
    yield f"# {version.ref}\n"
    made = f"{version.created_at:%Y-%m-%d %H:%M} UTC by {_plain(version.created_by)}"
    yield f"A version of the {version.kind} `{version.artifact}`, made {made}.\n"
    yield f"```sh\npodium pull {version.ref} {version.artifact}-v{version.number}\n```\n"
    yield from _origins(facts)
    yield from _scores(facts.measured)
    yield f"## Content\n\n{version.files} files, {version.size} bytes, `{version.digest}`\n"
    yield from _tags(facts)


def _origins(facts: Facts) -> Iterator[str]:
    if facts.made_from:
        yield "## Made from\n"
        rows = (
            (_WORDS.get(each.role, each.role.value), _named(each), f"`{each.digest}`")
            for each in facts.made_from
        )
        yield _table(("what", "version", "digest"), rows)
    if facts.run is not None:
        yield f"## How\n\nBy the run `{facts.run.id}` of the task {_plain(facts.run.task)}.\n"
        if facts.run.arguments:
            parameters = (
                (_plain(name), _plain(repr(value))) for name, value in sorted(facts.run.arguments.items())
            )
            yield _table(("parameter", "value"), parameters)


def _named(made: Made) -> str:
    return f"{made.name} ([{made.hub}](https://huggingface.co/{made.hub}))" if made.hub else made.name


def _scores(measured: Sequence[Measured]) -> Iterator[str]:
    if not measured:
        yield "## Evaluations\n\nNothing has judged it.\n"
        return
    yield "## Evaluations\n"
    rows = (
        (
            _plain(each.score.metric) + ("" if each.score.higher_is_better else " (lower is better)"),
            f"{each.score.value:.4g}",
            "-" if each.score.base is None else f"{each.score.base:.4g}",
            "-" if each.score.n is None else str(each.score.n),
            each.dataset,
            f"{each.report} by {_plain(each.evaluator)}",
        )
        for each in measured
    )
    yield _table(("metric", "score", "base", "examples", "on", "report"), rows)


def _tags(facts: Facts) -> Iterator[str]:
    if facts.version.tags:
        yield "## Tags\n"
        rows = ((_plain(name), _plain(value)) for name, value in sorted(facts.version.tags.items()))
        yield _table(("tag", "value"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _plain(text: str) -> str:
    """Text that anybody may have written, as it is to be read and not as Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))[:500]
