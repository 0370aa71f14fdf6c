"""`examples/post_train.py` on a tiny model, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from registry import Registry
from tests.common.registries import Place
from tests.common.workers import PODIUM

_EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("place", ["sqlite"], indirect=True)]


def podium(place: Place, *words: str) -> Any:
    environment = {**os.environ, **place.environment, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([PODIUM, *words, "--json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_the_example_trains_reruns_and_sweeps(
    registry: Registry, place: Place, tiny_llama: Path, tmp_path: Path
) -> None:
    registry.catalog.publish("tiny", tiny_llama, "model")
    tickets = tmp_path / "tickets"
    tickets.mkdir()
    for split, count in (("train", 24), ("validation", 8), ("heldout", 8)):
        lines = (_EXAMPLES / "tickets" / f"{split}.jsonl").read_text().splitlines()[:count]
        (tickets / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    registry.catalog.publish("tickets", tickets, "dataset")
    given = ("--base", "tiny:v1", "--source", "tickets:v1", "--steps", "2")

    first = podium(place, "run", f"{_EXAMPLES}/post_train.py:post_train", *given, "--lr", "1e-3")
    steps = registry.steps.of(first["run"])
    assert [step.task.rpartition(":")[2] for step in steps] == ["prepare", "train", "evaluate"]
    adapter = steps[1].outputs[0].value
    assert first["result"][0] == adapter
    assert {edge.role for edge in registry.lineage.walk(adapter, depth=1).edges} == {"base", "code", "data"}

    again = podium(place, "runs", "rerun", first["run"], "--from", "train", "--set", "lr=5e-4")
    tree = podium(place, "runs", "tree", again["run"])["steps"]
    assert [step["reused"] for step in tree] == [True, False, False]
    assert registry.runs.get(tree[1]["run"]).arguments["lr"] == 5e-4

    swept = podium(place, "run", f"{_EXAMPLES}/post_train.py:sweep", *given, "--name", "router")
    assert (swept["result"]["best"], swept["result"]["arms"]) == ("router:v1", 4)
    assert swept["result"]["heldout"]["nll"] > 0
    judged = [step for step in registry.steps.of(swept["run"]) if step.arguments.get("split") == "heldout"]
    assert len(judged) == 1  # what nothing is chosen by is looked at once
    prepared = [run for run in registry.runs.list(limit=100) if run.task.endswith(":prepare")]
    assert len([run for run in prepared if run.source is None]) == 1  # all arms share one

    compared = podium(place, "run", f"{_EXAMPLES}/post_train.py:compare", *given)
    assert compared["result"].keys() == {"lora", "qlora", "full"}
    assert len({scores["nll"] for scores in compared["result"].values()}) == 3
