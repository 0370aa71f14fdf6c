"""Pipelines as people use them: run, tree, recover, rerun, publish, cache explain, with nothing else up."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from registry import Registry
from tests.common.pipelines import Pipelines
from tests.common.registries import Place
from tests.common.workers import PODIUM

pytestmark = [pytest.mark.timeout(240), pytest.mark.parametrize("place", ["sqlite"], indirect=True)]

Podium = Callable[..., Any]


@pytest.fixture
def pipelines(registry: Registry, tmp_path: Path) -> Pipelines:
    return Pipelines(registry, tmp_path)


@pytest.fixture
def podium(place: Place) -> Podium:
    """Runs a command with ``--json``; its exit status must be ``status``."""

    def call(*words: str, status: int = 0) -> Any:
        done = subprocess.run(
            [PODIUM, *words, "--json"],
            env={**os.environ, **place.environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr + done.stdout
        return json.loads(done.stdout)

    return call


def steps_of(podium: Podium, run: str) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in podium("runs", "tree", run)["steps"]}


def run(podium: Podium, pipelines: Pipelines, task: str, *words: str, status: int = 0) -> Any:
    return podium(
        "run", f"{pipelines.file}:{task}", "--outside", str(pipelines.outside), *words, status=status
    )


def test_a_failed_pipeline_is_mended_and_recovered(podium: Podium, pipelines: Pipelines) -> None:
    pipelines.tell("fail", "evaluate")
    failed = run(podium, pipelines, "post_train", status=1)
    assert failed["state"] == "failed"
    assert steps_of(podium, failed["run"])["evaluate"]["cause"] == "error"
    text = pipelines.file.read_text()
    pipelines.file.write_text(text.replace("return float((model", "return 10 + float((model"))
    pipelines.let("fail", "evaluate")
    done = podium("runs", "recover", failed["run"])
    assert (done["run"], done["state"], done["result"]["score"]) == (failed["run"], "succeeded", 11.0)
    assert done["changed"] == ["evaluate"]
    steps = steps_of(podium, done["run"])
    assert {name: step["reused"] for name, step in steps.items()} == {
        "prepare": True,
        "train": True,
        "evaluate": False,
    }
    assert Counter(pipelines.executions()) == {"prepare": 1, "train": 1, "evaluate": 2}
    assert podium("runs", "recover", done["run"], status=1)["error"] == "run_refused"


def test_a_change_of_what_is_finished_is_told(podium: Podium, pipelines: Pipelines) -> None:
    pipelines.tell("fail", "evaluate")
    failed = run(podium, pipelines, "post_train", status=1)
    pipelines.let("fail", "evaluate")
    pipelines.file.write_text(pipelines.file.read_text().replace("WORDS = 3", "WORDS = 4"))
    assert podium("runs", "recover", failed["run"])["changed"] == ["prepare"]
    assert pipelines.executions().count("prepare") == 1


def test_rerun_does_a_step_and_what_follows_with_another_argument(
    podium: Podium, pipelines: Pipelines
) -> None:
    first = run(podium, pipelines, "post_train", "--lr", "0.5")
    again = podium("runs", "rerun", first["run"], "--from", "train", "--set", "lr=0.25")
    assert again["run"] != first["run"]
    assert (first["result"]["score"], again["result"]["score"]) == (0.5, 0.25)
    steps, before = steps_of(podium, again["run"]), steps_of(podium, first["run"])
    assert steps["prepare"]["source"] == before["prepare"]["run"]
    assert not steps["train"]["reused"]
    assert Counter(pipelines.executions()) == {"prepare": 1, "train": 2, "evaluate": 2}
    published = podium("publish", f"{again['run']}/prepare", "tickets")
    assert published["run"] == before["prepare"]["run"]  # who really made it
    node = podium("lineage", "tickets:v1")
    assert before["prepare"]["run"] in json.dumps(node)


def test_a_fork_of_a_fork_keeps_what_the_first_one_changed(podium: Podium, pipelines: Pipelines) -> None:
    first = run(podium, pipelines, "post_train")
    other = podium("runs", "rerun", first["run"], "--from", "train", "--set", "name=other")
    last = podium("runs", "rerun", other["run"], "--from", "train", "--set", "lr=0.5")
    assert last["result"]["score"] == 0.5
    counted = Counter(pipelines.executions())
    assert (counted["train"], counted["other"]) == (1, 2)


def test_rerun_of_one_arm_leaves_the_others(podium: Podium, pipelines: Pipelines) -> None:
    first = run(podium, pipelines, "sweep", "--rates", "[1, 2]")
    assert first["result"] == [1.0, 2.0]
    several = podium("runs", "rerun", first["run"], "--from", "train", status=2)
    assert "train#1, train#2" in several["remedy"]
    again = podium("runs", "rerun", first["run"], "--from", "train#2", "--set", "lr=7")
    assert again["result"] == [1.0, 7.0]
    counted = Counter(pipelines.executions())
    assert (counted["cached-sweep"], counted["train-1.0"], counted["train-2.0"]) == (1, 1, 2)


def test_what_does_not_exist_is_named(podium: Podium, pipelines: Pipelines) -> None:
    first = run(podium, pipelines, "post_train")
    unknown = podium("runs", "rerun", first["run"], "--from", "tran", status=2)
    assert "prepare, train, evaluate" in unknown["remedy"]
    unknown = podium("runs", "rerun", first["run"], "--from", "train", "--set", "rate=1", status=2)
    assert "lr" in unknown["remedy"]
    podium("runs", "tree", "nothing", status=2)


def test_rerun_from_a_step_of_a_step_leaves_what_came_before_it_in_there(
    podium: Podium, pipelines: Pipelines
) -> None:
    first = run(podium, pipelines, "nested")
    before = len(pipelines.executions())
    start = "post_train#2/train"
    again = podium("runs", "rerun", first["run"], "--from", start, "--set", "name=other", "--set", "lr=9")
    # The rate came from the top, but it is set below: the first pipeline was given it, too, and is kept.
    assert "lr" not in podium("runs", "show", again["run"])["arguments"]
    assert [again["result"][0], again["result"][1]] == [1.0, 9.0]
    # Only what began with that step was done: the training under its other name, its score, and what follows.
    assert sorted(pipelines.executions()[before:]) == sorted(["other", "evaluate", "unlike"])
    outer = podium("runs", "tree", again["run"])["steps"]
    assert [step["reused"] for step in outer] == [True, False, False]
    assert [step["reused"] for step in outer[1]["steps"]] == [True, False, False]
    # Done as a whole once more, the second pipeline is still given what was set in it.
    before = len(pipelines.executions())
    podium("runs", "rerun", again["run"], "--from", "post_train#2")
    assert sorted(pipelines.executions()[before:]) == sorted(["prepare", "other", "evaluate", "unlike"])
    # What was reused as a whole can be entered, too: its steps are those of the run that did it.
    third = podium("runs", "rerun", again["run"], "--from", "post_train#1/evaluate")
    inner = podium("runs", "tree", third["run"])["steps"][0]["steps"]
    assert [step["reused"] for step in inner] == [True, True, False]
    unknown = podium("runs", "rerun", first["run"], "--from", "post_train#2/tran", status=2)
    assert "prepare, train, evaluate" in unknown["remedy"]


def test_the_cache_says_why(podium: Podium, pipelines: Pipelines) -> None:
    first = run(podium, pipelines, "sweep", "--rates", "[1]")
    assert "No earlier run" in podium("cache", "explain", first["run"], "cached")["reason"]
    second = run(podium, pipelines, "sweep", "--rates", "[1]")
    explained = podium("cache", "explain", second["run"], "cached")
    assert explained["hit"]
    assert explained["source"] == steps_of(podium, first["run"])["cached"]["run"]
    pipelines.file.write_text(pipelines.file.read_text().replace("WORDS = 3", "WORDS = 4"))
    third = run(podium, pipelines, "sweep", "--rates", "[1]")
    explained = podium("cache", "explain", third["run"], "cached")
    assert (explained["hit"], explained["changed"]) == (False, ["code pipe.py:WORDS"])
    assert pipelines.executions().count("cached-sweep") == 2


def test_a_run_that_lives_is_not_recovered_without_being_taken_over(
    podium: Podium, pipelines: Pipelines, registry: Registry
) -> None:
    queued = run(podium, pipelines, "post_train", "--detach")
    refused = podium("runs", "recover", queued["run"], status=1)
    assert "--take-over" in refused["remedy"]
    assert podium("runs", "recover", queued["run"], "--take-over")["state"] == "succeeded"
