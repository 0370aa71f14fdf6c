"""Steps in the journal: asked for once, repeated when they failed, reused, cancelled with their tree."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from registry import Registry
from registry.errors import InvalidInput, NotFound, RunRefused, StaleAuthority
from registry.resources import Resources
from registry.runs import (
    MOST_DEPTH,
    MOST_KILLS,
    Cause,
    Claim,
    NewOutput,
    Run,
    RunError,
    RunRequest,
    RunState,
    private_pool,
)
from registry.steps import find, handled, kept, names
from tests.common import content
from tests.common.registries import Maker

ROOM = Resources(cpu=8, memory="8Gi")


def take(registry: Registry, **options: object) -> list[Claim]:
    return list(registry.runs.claim("worker-1", **{"free": ROOM, "total": ROOM, **options}))  # type: ignore[arg-type]


class Driver:
    """A pipeline that runs, and asks for steps."""

    def __init__(self, registry: Registry, **request: object) -> None:
        self.base = registry
        self.run = registry.runs.queue(RunRequest("p.py:pipeline", **request))  # type: ignore[arg-type]
        self.begin()

    def begin(self) -> None:
        (self.claim,) = [c for c in take(self.base, pool=self.run.pool) if c.run.id == self.run.id]
        self.registry = self.base.acting(self.claim.origin)

    def request(self, place: str, signature: str = "s", **request: object) -> RunRequest:
        task = place.rpartition("/")[2].partition("#")[0]
        return RunRequest(f"p.py:{task}", parent=self.run.id, place=place, signature=signature, **request)  # type: ignore[arg-type]

    def ask(self, place: str, **request: object) -> Run:
        return self.registry.steps.ask(self.request(place, **request))

    def steps(self) -> dict[str, Run]:
        return {step.place or "": step for step in self.registry.steps.of(self.run.id)}

    def fail(self, cause: Cause = Cause.ERROR) -> Run:
        return self.registry.runs.end(self.run.id, cause, RunError("ValueError", "x"))


def do(registry: Registry, result: object = 1, **options: object) -> list[Run]:
    """Take all that is queued, and succeed with it."""
    return [
        registry.acting(c.origin).runs.finish(c.run.id, [], result=result) for c in take(registry, **options)
    ]


def fail(registry: Registry, cause: Cause = Cause.ERROR) -> list[Run]:
    return [
        registry.acting(c.origin).runs.end(c.run.id, cause, RunError("ValueError", "bad"))
        for c in take(registry)
    ]


def test_a_step_is_asked_for_once(registry: Registry) -> None:
    driver = Driver(registry)
    first = driver.ask("/train#1", arguments={"lr": 1})
    assert driver.ask("/train#1", arguments={"lr": 1}) == first
    assert (first.parent, first.root, first.depth) == (driver.run.id, driver.run.id, 1)
    assert first.correlation == driver.run.correlation


def test_a_stale_driver_asks_for_nothing(registry: Registry) -> None:
    driver = Driver(registry)
    registry.runs.recover(driver.run.id, take_over=True)
    with pytest.raises(StaleAuthority):
        driver.ask("/train#1")
    with pytest.raises(StaleAuthority):
        driver.registry.steps.record(driver.request("/now#1"), datetime.now(UTC), result=1)


def test_tasks_that_call_themselves_come_to_an_end(registry: Registry) -> None:
    parent = registry.runs.queue(RunRequest("p.py:again"))
    for depth in range(1, MOST_DEPTH + 1):
        parent = registry.steps.ask(RunRequest("p.py:again", parent=parent.id, place="/again#1"))
        assert parent.depth == depth
    with pytest.raises(RunRefused, match="32 deep"):
        registry.steps.ask(RunRequest("p.py:again", parent=parent.id, place="/again#1"))


def test_older_trees_are_done_first(registry: Registry) -> None:
    driver = Driver(registry)
    younger = registry.runs.queue(RunRequest("other"))
    step = driver.ask("/train#1")
    assert [claim.run.id for claim in take(registry)] == [step.id, younger.id]


def test_a_private_worker_takes_one_tree_whatever_the_pools_of_its_steps(registry: Registry) -> None:
    pool = private_pool()
    driver = Driver(registry, pool=pool)
    driver.ask("/train#1", pool="gpu", resources=Resources(gpu="H200:1"))
    registry.runs.queue(RunRequest("other"))
    assert take(registry, pool="gpu") == []
    assert take(registry, pool=pool, only=driver.run.id) == []
    (claim,) = take(registry, pool=pool, only=driver.run.id, lenient=True)
    assert claim.run.place == "/train#1"


def test_a_run_waits_while_a_step_of_it_lives(registry: Registry) -> None:
    driver = Driver(registry)
    assert registry.steps.awaiting([driver.run.id]) == set()
    driver.ask("/train#1")
    assert registry.steps.awaiting([driver.run.id]) == {driver.run.id}
    (done,) = do(registry)
    assert registry.steps.awaiting([driver.run.id]) == set()
    assert registry.steps.ended([done.id, driver.run.id]) == [done]


def test_recover_repeats_what_failed_and_keeps_what_is_done(registry: Registry) -> None:
    driver = Driver(registry)
    driver.ask("/prepare#1")
    (prepared,) = do(registry)
    step = driver.ask("/train#1")
    fail(registry)
    driver.fail()
    registry.runs.recover(driver.run.id)
    steps = driver.steps()
    assert (steps["/prepare#1"].again, steps["/train#1"].again) == (False, True)
    driver.begin()
    assert driver.ask("/prepare#1") == prepared
    repeated = driver.registry.steps.again(step.id, driver.request("/train#1", "t", arguments={"lr": 2}))
    assert (repeated.id, repeated.state, repeated.arguments) == (step.id, RunState.QUEUED, {"lr": 2})
    (done,) = do(registry)
    assert (done.state, done.attempts, done.error) == (RunState.SUCCEEDED, 2, None)


def test_a_driver_that_is_killed_again_and_again_lives_on_while_its_steps_get_done(
    registry: Registry,
) -> None:
    driver = Driver(registry)
    for number in range(2 * MOST_KILLS):
        driver.ask(f"/train#{number}")
        do(registry)
        assert driver.fail(Cause.KILLED).state is RunState.QUEUED
        driver.begin()
    for _ in range(MOST_KILLS - 1):
        assert driver.fail(Cause.KILLED).state is RunState.QUEUED
        driver.begin()
    assert driver.fail(Cause.KILLED).state is RunState.FAILED


def test_retries_are_counted_anew_after_a_recover(registry: Registry) -> None:
    run = registry.runs.queue(RunRequest("train"))
    fail(registry)
    assert registry.runs.recover(run.id).state is RunState.QUEUED
    assert fail(registry)[0].state is RunState.FAILED


def test_a_failure_that_the_pipeline_dealt_with_is_part_of_its_history(registry: Registry) -> None:
    driver = Driver(registry)
    driver.ask("/train#1")
    fail(registry)
    driver.ask("/train#2")
    do(registry)
    driver.ask("/evaluate#1")
    fail(registry)
    assert handled(list(driver.steps().values())) == {driver.steps()["/train#1"].id}
    driver.fail()
    registry.runs.recover(driver.run.id)
    assert {place for place, step in driver.steps().items() if step.again} == {"/evaluate#1"}


def test_when_a_run_ends_its_steps_end_with_it(registry: Registry) -> None:
    driver = Driver(registry)
    running = driver.ask("/train#1")
    (claim,) = take(registry)
    below = registry.acting(claim.origin).steps.ask(RunRequest("p.py:x", parent=running.id, place="/x#1"))
    queued = driver.ask("/train#2")
    registry.runs.cancel(driver.run.id)
    assert {registry.runs.get(r.id).state for r in (running, below, queued)} == {RunState.CANCELLED}
    with pytest.raises(StaleAuthority):
        registry.acting(claim.origin).runs.finish(running.id, [])


def test_a_run_that_lives_is_recovered_only_by_taking_it_over(registry: Registry) -> None:
    driver = Driver(registry)
    driver.ask("/train#1")
    (claim,) = take(registry)
    with pytest.raises(RunRefused, match="lives") as refused:
        registry.runs.recover(driver.run.id)
    assert "--take-over" in refused.value.remedy
    taken = registry.runs.recover(driver.run.id, take_over=True)
    assert (taken.state, taken.cause) == (RunState.QUEUED, Cause.TAKEN_OVER)
    assert driver.steps()["/train#1"].state is RunState.RUNNING  # the next attempt joins it
    registry.acting(claim.origin).runs.finish(claim.run.id, [])
    with pytest.raises(RunRefused, match=driver.run.id):
        registry.runs.recover(claim.run.id)


def test_of_those_that_ask_for_the_same_at_once_one_does_it(registry: Registry) -> None:
    drivers = [Driver(registry) for _ in range(2)]
    steps = [d.ask("/prepare#1", cache_key="k") for d in drivers] + [
        drivers[0].ask("/prepare#2", cache_key="k")
    ]
    assert [step.waits_for for step in steps] == [None, steps[0].id, steps[0].id]
    assert registry.steps.settle(steps[1].id).waits_for == steps[0].id
    (done,) = do(registry, result={"rows": 3})
    for step in steps[1:]:
        reused = registry.steps.settle(step.id)
        assert (reused.state, reused.source, reused.result) == (RunState.SUCCEEDED, done.id, {"rows": 3})
    later = drivers[1].ask("/prepare#3", cache_key="k")
    assert (later.state, later.source) == (RunState.SUCCEEDED, done.id)
    assert drivers[1].ask("/prepare#4", cache_key="other").state is RunState.QUEUED


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_when_the_one_that_did_it_is_gone_the_next_one_does_it(registry: Registry, how: str) -> None:
    first, second = Driver(registry), Driver(registry)
    step, waiting = first.ask("/prepare#1", cache_key="k"), second.ask("/prepare#1", cache_key="k")
    third = second.ask("/prepare#2", cache_key="k")
    if how == "cancelled":
        registry.runs.cancel(step.id)
    else:
        fail(registry)
    flying = registry.steps.settle(waiting.id)
    assert (flying.waits_for, flying.state) == (None, RunState.QUEUED)
    assert registry.steps.settle(third.id).waits_for == waiting.id
    assert [run.id for run in do(registry)] == [waiting.id]
    assert registry.steps.settle(third.id).source == waiting.id


def test_nobody_waits_for_ever_for_work_that_nobody_does(registry: Registry) -> None:
    abandoned, driver = Driver(registry, pool=private_pool()), Driver(registry)
    abandoned.ask("/prepare#1", cache_key="k")
    waiting = driver.ask("/prepare#1", cache_key="k")
    alone = registry.steps.settle(waiting.id, impatient=True)
    assert (alone.waits_for, alone.cache_key, alone.state) == (None, None, RunState.QUEUED)
    assert [run.id for run in do(registry)] == [waiting.id]


def test_a_fork_has_what_came_before_and_says_who_made_it(registry: Registry, tmp_path: Path) -> None:
    driver = Driver(registry)
    driver.ask("/prepare#1")
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    content.write_dataset(tmp_path / "d", {"data.jsonl": b"{}\n"})
    stored = acting.catalog.store(tmp_path / "d", "dataset")
    prepared = acting.runs.finish(claim.run.id, [NewOutput("result", "dataset", stored.digest)])
    driver.ask("/train#1")
    do(registry)
    driver.ask("/evaluate#1")
    do(registry)
    driver.registry.runs.finish(driver.run.id, [])
    steps = registry.steps.of(driver.run.id)
    reused = [step.id for step in kept(steps, find(steps, "train"))]
    assert reused == [prepared.id]
    fork = registry.steps.fork(RunRequest("p.py:pipeline"), reused)
    (copy,) = registry.steps.of(fork.id)
    assert (copy.source, copy.state, copy.root) == (prepared.id, RunState.SUCCEEDED, fork.id)
    assert copy.outputs == prepared.outputs
    again = registry.steps.fork(RunRequest("p.py:pipeline"), [copy.id])
    assert registry.steps.of(again.id)[0].source == prepared.id  # not the fork, which made nothing
    version = registry.catalog.name("tickets", copy.outputs[0].value).version
    assert (version.ref, version.run) == ("tickets:v1", prepared.id)


def test_a_fork_from_a_step_that_was_reused_does_what_came_after_it_anew(registry: Registry) -> None:
    first = Driver(registry)
    first.ask("/shared#1", cache_key="k")
    do(registry)
    driver = Driver(registry)
    driver.ask("/shared#1", cache_key="k")
    driver.ask("/train#1")  # nothing has happened since that one was found to be done
    do(registry)
    steps = registry.steps.of(driver.run.id)
    assert [each.place for each in kept(steps, find(steps, "shared"))] == []
    assert [each.place for each in kept(steps, find(steps, "train"))] == ["/shared#1"]


def test_branches_of_one_gather_map_do_not_depend_on_each_other(registry: Registry) -> None:
    driver = Driver(registry)
    for arm in range(3):
        driver.ask(f"map0[{arm}]/train#1")
        do(registry)
        driver.ask(f"map0[{arm}]/evaluate#1")
        do(registry)
    driver.ask("/choose#1")
    do(registry)
    steps = registry.steps.of(driver.run.id)
    taken = {step.place for step in kept(steps, find(steps, "train#2"))}
    assert taken == {f"map0[{arm}]/{task}#1" for arm in (0, 2) for task in ("train", "evaluate")}


def test_steps_have_names_and_an_unknown_one_lists_them(registry: Registry) -> None:
    driver = Driver(registry)
    for place in ("/prepare#1", "a[0]/train#1", "a[1]/train#1"):
        driver.ask(place)
    steps = registry.steps.of(driver.run.id)
    assert list(names(steps).values()) == ["prepare", "train#1", "train#2"]
    assert find(steps, "prepare#1") == find(steps, "prepare")
    with pytest.raises(NotFound) as unknown:
        find(steps, "tain")
    assert "prepare, train#1, train#2" in unknown.value.remedy
    with pytest.raises(InvalidInput, match="2 steps"):
        find(steps, "train")


def test_what_a_driver_does_itself_is_recorded_once(registry: Registry, make: Maker) -> None:
    driver, began = Driver(registry), datetime.now(UTC)
    data = make.dataset("tickets")
    record = driver.registry.steps.record
    day = driver.request("/now#1")
    assert record(day, began, result="monday") == "monday"
    assert record(day, began, result="tuesday") == "monday"
    small = driver.request("/small#1", arguments={"x": 1}, inputs={"data": "tickets:v1"})
    record(small, began, error=RunError("ValueError", "no"))
    assert driver.steps()["/small#1"].state is RunState.FAILED
    assert record(small, began, result=2) == 2
    done = driver.steps()["/small#1"]
    assert (done.state, done.result, done.inline, done.error) == (RunState.SUCCEEDED, 2, True, None)
    assert (done.arguments, done.inputs[0].value) == ({"x": 1}, data.value)
    assert registry.steps.awaiting([driver.run.id]) == set()
    assert take(registry) == []
