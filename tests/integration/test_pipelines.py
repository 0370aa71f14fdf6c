"""Pipelines on real workers: steps that run once, whatever is killed, and what is done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from registry import Registry
from registry.runs import Cause, RunState
from registry.steps import names
from tests.common.pipelines import Pipelines
from tests.common.registries import Place
from tests.common.workers import WorkerProcess

Start = Callable[..., WorkerProcess]

once = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
pytestmark = [pytest.mark.timeout(240), once]


@pytest.fixture
def pipelines(registry: Registry, tmp_path: Path) -> Pipelines:
    return Pipelines(registry, tmp_path)


@pytest.fixture
def start(place: Place, tmp_path: Path) -> Iterator[Start]:
    """Starts workers, and ends what is left of them."""
    started: list[WorkerProcess] = []

    def begin(**options: object) -> WorkerProcess:
        started.append(WorkerProcess(place, tmp_path, **{"lease": 5.0, **options}))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for worker in started:
        worker.end()


def test_one_slot_is_enough_for_a_pipeline_of_any_depth(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start(cpu=1)
    run = pipelines.end(pipelines.queue("deep", depth=4))
    assert (run.state, run.result) == (RunState.SUCCEEDED, 4)
    depths = [each.depth for each in registry.runs.list() if each.root == run.id]
    assert sorted(depths) == [0, 1, 2, 3, 4]
    assert registry.leases.held("run/") == []


def test_steps_hand_values_on_with_their_lineage(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start()
    run = pipelines.end(pipelines.queue("post_train", lr=0.5))
    assert run.state is RunState.SUCCEEDED, run.error
    assert run.result == {"model": {"$output": "model"}, "score": 0.5}
    prepared, trained, evaluated = registry.steps.of(run.id)
    assert list(names([prepared, trained, evaluated]).values()) == ["prepare", "train", "evaluate"]
    (model,) = run.outputs
    assert model.value == trained.outputs[0].value == evaluated.inputs[0].value
    edges = registry.lineage.walk(model.value, depth=1).edges
    assert prepared.outputs[0].value in {edge.parent for edge in edges}


@pytest.mark.parametrize("who", ["driver", "step", "worker"])
def test_what_is_killed_goes_on_by_itself_and_no_finished_step_runs_again(
    registry: Registry, pipelines: Pipelines, start: Start, who: str
) -> None:
    pipelines.tell("wait", "train")
    worker = start()
    run = pipelines.queue("post_train")
    pipelines.wait_for("train")
    step = registry.steps.of(run.id)[1]
    if who == "worker":
        worker.process.kill()
        start()
    else:
        pipelines.process_of("driver" if who == "driver" else "train").kill()
    if who != "driver":
        pipelines.wait_for("train", 2)
    pipelines.let("wait", "train")
    ended = pipelines.end(run)
    assert ended.state is RunState.SUCCEEDED, ended.error
    counted = Counter(pipelines.executions())
    assert (counted["prepare"], counted["evaluate"]) == (1, 1)
    assert counted["train"] == (1 if who == "driver" else 2)
    assert [s.id for s in registry.steps.of(run.id)][:2] == [registry.steps.of(run.id)[0].id, step.id]
    assert registry.leases.held("run/") == []


def test_recover_does_what_failed_and_reuses_the_rest(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    pipelines.tell("fail", "evaluate")
    start()
    run = pipelines.end(pipelines.queue("post_train"))
    assert run.state is RunState.FAILED
    assert run.error is not None and "evaluate was told to fail" in run.error.message
    pipelines.let("fail", "evaluate")
    registry.runs.recover(run.id)
    assert pipelines.end(run).state is RunState.SUCCEEDED
    assert Counter(pipelines.executions()) == {"prepare": 1, "train": 1, "evaluate": 2}


def test_equal_branches_get_their_own_results_again(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start(cpu=4)
    pipelines.tell("wait", "unlike")
    run = pipelines.queue("equal", count=10)
    pipelines.wait_for("unlike")
    pipelines.let("wait", "unlike")
    pipelines.wait_for("unlike", 4)  # three go on at a time: the first has ended
    done = {step.place: step.result for step in registry.steps.of(run.id) if step.result is not None}
    pipelines.process_of("driver").kill()
    ended = pipelines.end(run)
    results = {f"map0[{number}]/unlike#1": result for number, result in enumerate(ended.result)}
    assert len(set(ended.result)) == 10
    assert done
    assert done.items() <= results.items()
    assert results == {step.place: step.result for step in registry.steps.of(run.id)}
    assert Counter(pipelines.executions()) == {"unlike": 10}


def test_chance_and_time_are_the_same_when_a_driver_goes_on(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start()
    pipelines.tell("wait", "nothing")
    run = pipelines.queue("drawn")
    pipelines.wait_for("nothing")
    before = [step.result for step in registry.steps.of(run.id)][:3]
    pipelines.process_of("driver").kill()
    pipelines.let("wait", "nothing")
    ended = pipelines.end(run)
    assert ended.attempts == 2
    assert ended.result[1:3] == before[1:]
    assert ended.result[3] not in before


def test_what_a_driver_does_itself_is_not_done_again(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start()
    pipelines.tell("wait", "nothing")
    run = pipelines.queue("inlined")
    pipelines.wait_for("nothing")
    pipelines.process_of("driver").kill()
    pipelines.let("wait", "nothing")
    assert pipelines.end(run).result == 20
    assert Counter(pipelines.executions()) == {**{f"small-{x}": 1 for x in range(5)}, "nothing": 1}


def test_an_error_of_a_step_can_be_caught(registry: Registry, pipelines: Pipelines, start: Start) -> None:
    start()
    pipelines.tell("fail", "nothing")
    ended = pipelines.end(pipelines.queue("caught"))
    assert ended.state is RunState.SUCCEEDED, ended.error
    assert "nothing was told to fail" in ended.result


def test_arms_that_want_the_same_prepare_it_once_even_when_the_first_is_cancelled(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start(cpu=4)
    pipelines.tell("wait", "cached-sweep")
    sweeps = [pipelines.queue("sweep", rates=[rate]) for rate in (1.0, 2.0, 3.0)]
    pipelines.wait_for("cached-sweep")
    (flying,) = [r for r in registry.runs.list(state=RunState.RUNNING) if r.cache_key]
    registry.runs.cancel(flying.root)
    pipelines.wait_for("cached-sweep", 2)
    pipelines.let("wait", "cached-sweep")
    ended = [pipelines.end(sweep) for sweep in sweeps]
    assert Counter(run.state for run in ended) == {RunState.SUCCEEDED: 2, RunState.CANCELLED: 1}
    assert pipelines.executions().count("cached-sweep") == 2
    makers = {s.source or s.id for r in ended if r.id != flying.root for s in registry.steps.of(r.id)[:1]}
    assert len(makers) == 1


def test_a_cancelled_tree_leaves_nothing_running(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start()
    pipelines.tell("wait", "train")
    run = pipelines.queue("post_train")
    pipelines.wait_for("train")
    driver, step = pipelines.process_of("driver"), pipelines.process_of("train")
    registry.runs.cancel(run.id)
    states = {step.state for step in registry.steps.of(run.id)}
    assert states == {RunState.SUCCEEDED, RunState.CANCELLED}
    psutil.wait_procs([driver, step], timeout=20)
    assert not driver.is_running()
    assert not step.is_running()
    assert registry.leases.held("run/") == []


def test_a_driver_that_is_taken_over_joins_its_steps(
    registry: Registry, pipelines: Pipelines, start: Start
) -> None:
    start()
    pipelines.tell("wait", "train")
    run = pipelines.queue("post_train")
    pipelines.wait_for("train")
    registry.runs.recover(run.id, take_over=True)
    pipelines.let("wait", "train")
    ended = pipelines.end(run)
    assert ended.state is RunState.SUCCEEDED, ended.error
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.TAKEN_OVER, None]
    assert Counter(pipelines.executions()) == {"prepare": 1, "train": 1, "evaluate": 1}
