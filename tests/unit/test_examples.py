"""The example app is what the demo and the README say it is."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from registry.apps.loading import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_support_app_declares_gates_a_trigger_a_subscription_and_a_deployment() -> None:
    loaded = load_file(EXAMPLES / "support.py")
    assert loaded.app == "support"
    assert {(each.deployable, each.name) for each in loaded.deployables} == {
        ("deployment", "router"),
        ("gate", "accurate"),
        ("gate", "better-than-base"),
        ("gate", "no-worse-than-live"),
        ("subscription", "note-live"),
        ("trigger", "judge"),
    }


SPLITS = ("train", "validation", "heldout")


def _tickets(split: str) -> list[tuple[str, str]]:
    """Ticket and queue of each line."""
    rows = map(json.loads, (EXAMPLES / "tickets" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines())
    return [(row["prompt"][-1]["content"], row["completion"][0]["content"]) for row in rows]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def test_held_out_tickets_are_not_others_in_other_words() -> None:
    seen = [_words(text) for split in ("train", "validation") for text, _ in _tickets(split)]
    for text, _ in _tickets("heldout"):
        mine = _words(text)
        assert max(len(mine & other) / len(mine | other) for other in seen) < 0.5, text


@pytest.mark.parametrize("split", SPLITS)
def test_each_queue_has_as_many_tickets(split: str) -> None:
    counts = Counter(queue for _, queue in _tickets(split))
    assert (len(counts), len(set(counts.values()))) == (8, 1)


def test_all_gates_of_the_support_app_judge_on_one_held_out_set() -> None:
    objects = load_file(EXAMPLES / "support.py").objects()
    gates = [each.body for each in objects if each.kind == "gate"]
    assert {(gate["artifact"], gate["alias"], gate["rule"]["on"]) for gate in gates} == {
        ("ticket-router", "production", "tickets:v1")
    }


def test_tickets_are_asked_as_they_are_trained() -> None:
    """The instruction is the same in every line: a served name is asked with it too."""
    files = [EXAMPLES / "tickets" / f"{split}.jsonl" for split in SPLITS]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert {json.loads(line)["prompt"][0]["content"] for line in lines} == {"Which queue?"}
