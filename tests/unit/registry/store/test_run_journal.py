"""The run journal, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from registry import Registry
from registry.errors import (
    AliasNotFound,
    ArtifactNotFound,
    InvalidReference,
    NotFound,
    RunNotFound,
    RunRefused,
    StaleAuthority,
    VersionNotFound,
)
from registry.events import EventType
from registry.resources import Resources
from registry.runs import Cause, Claim, NewOutput, Run, RunError, RunRequest, RunState, private_pool
from registry.values import Parent, Role
from tests.common import content
from tests.common.registries import Maker, Place

ROOM = Resources(cpu=8, memory="8Gi")


def queue(registry: Registry, task: str = "train", **request: object) -> Run:
    return registry.runs.queue(RunRequest(task, **request))  # type: ignore[arg-type]


def take(registry: Registry, worker: str = "worker-1", **options: object) -> list[Claim]:
    return list(registry.runs.claim(worker, **{"free": ROOM, "total": ROOM, **options}))  # type: ignore[arg-type]


def stored_dataset(registry: Registry, folder: Path, text: bytes = b"{}\n") -> NewOutput:
    content.write_dataset(folder, {"data.jsonl": text})
    stored = registry.catalog.store(folder, "dataset")
    return NewOutput("result", "dataset", stored.digest)


def events_of(registry: Registry, run: Run) -> list[EventType]:
    return [EventType(e.type) for e in registry.events.after(0) if e.subject == f"run/{run.id}"]


def test_a_name_means_what_it_meant_when_the_run_was_asked_for(registry: Registry, make: Maker) -> None:
    first = make.dataset("tickets")
    run = queue(registry, inputs={"data": "tickets"}, roles={"data": Role.DATA})
    make.dataset("tickets")
    (data,) = registry.runs.get(run.id).inputs
    assert (data.digest, data.ref, data.role) == (first.digest, "tickets:v1", Role.DATA)


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("nothing", ArtifactNotFound),
        ("tickets:v9", VersionNotFound),
        ("tickets:production", AliasNotFound),
        ("Tickets", InvalidReference),
    ],
)
def test_an_input_that_is_not_there_is_refused_and_nothing_is_queued(
    registry: Registry, make: Maker, reference: str, error: type[Exception]
) -> None:
    make.dataset("tickets")
    with pytest.raises(error):
        queue(registry, inputs={"data": reference})
    assert registry.runs.list() == []


def test_a_run_asked_for_twice_with_one_key_is_one_run(registry: Registry) -> None:
    assert queue(registry, key="delivery-1").id == queue(registry, key="delivery-1").id
    assert len(registry.runs.list()) == 1


def test_a_run_asked_for_by_many_at_once_with_one_key_is_one_run(place: Place) -> None:
    registries = [place.open() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(lambda registry: queue(registry, key="delivery-1").id, registries))
    assert len(set(runs)) == 1
    assert len(events_of(registries[0], registries[0].runs.get(runs[0]))) == 1


def test_a_run_is_found_by_the_beginning_of_its_id(registry: Registry) -> None:
    run = queue(registry)
    assert registry.runs.get(run.id[:6]).id == run.id
    for wrong in ("zzz", run.id + "0"):
        with pytest.raises(RunNotFound):
            registry.runs.get(wrong)
    with pytest.raises(NotFound):
        registry.runs.get("")


def test_the_oldest_that_fit_are_taken_first(registry: Registry) -> None:
    runs = [queue(registry, resources=Resources(cpu=cpu)) for cpu in (3, 99, 3, 3)]
    assert [claim.run.id for claim in take(registry)] == [runs[0].id, runs[2].id]


def test_a_run_that_is_taken_runs_under_a_lease_of_its_worker(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = take(registry, "worker-7")
    assert (claim.run.state, claim.attempt, claim.lease.holder) == (RunState.RUNNING, 1, "worker-7")
    assert registry.leases.get(f"run/{run.id}") == claim.lease
    assert take(registry, "worker-8") == []


def test_runs_of_another_pool_are_left_alone(registry: Registry) -> None:
    queue(registry, pool="gpu")
    assert take(registry) == []
    assert len(take(registry, pool="gpu")) == 1


def test_runs_beyond_the_first_page_are_found(registry: Registry) -> None:
    for _ in range(210):
        queue(registry, resources=Resources(gpu="H200:8"))
    small = queue(registry)
    assert [claim.run.id for claim in take(registry)] == [small.id]


def test_two_workers_never_take_the_same_run(place: Place) -> None:
    registries = [place.open() for _ in range(4)]
    for _ in range(40):
        queue(registries[0])

    def drain(number: int) -> list[str]:
        taken: list[str] = []
        while claims := take(registries[number], f"worker-{number}", limit=3):
            taken += [claim.run.id for claim in claims]
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = [run for part in threads.map(drain, range(4)) for run in part]
    left = take(registries[0], limit=40)
    assert len(taken) + len(left) == 40
    assert len({*taken, *(claim.run.id for claim in left)}) == 40


def test_what_a_run_made_is_published_with_all_it_was_made_from(
    registry: Registry, make: Maker, tmp_path: Path
) -> None:
    base, data = make.model("smollm2"), make.dataset("tickets")
    content.write_dataset(tmp_path / "code", {"train.py": b"pass\n"})
    code = registry.catalog.store(tmp_path / "code", "bundle").digest
    run = queue(
        registry,
        inputs={"base": "smollm2:v1", "data": "tickets:v1"},
        roles={"base": Role.BASE, "data": Role.DATA},
        code=code,
        publish="router",
    )
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    content.write_adapter(tmp_path / "adapter")
    stored = acting.catalog.store(tmp_path / "adapter", "adapter")
    output = NewOutput("result", "adapter", stored.digest, metadata={"rank": 8})
    finished = acting.runs.finish(run.id, [output], result=None)

    version = registry.catalog.resolve("router:v1")
    assert finished.state is RunState.SUCCEEDED
    assert (finished.outputs[0].ref, version.run, version.metadata) == ("router:v1", run.id, {"rank": 8})
    graph = registry.lineage.walk("router:v1", depth=1)
    parents = {edge.role: edge.parent for edge in graph.edges}
    assert parents[Role.BASE] == base.value
    assert parents[Role.DATA] == data.value
    assert Role.CODE in parents
    assert registry.leases.get(run.lease) is None
    assert events_of(registry, run)[-1] is EventType.RUN_SUCCEEDED


def test_an_output_that_nobody_named_is_a_value_without_a_version(registry: Registry, tmp_path: Path) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    finished = acting.runs.finish(run.id, [stored_dataset(acting, tmp_path / "d")])
    assert finished.outputs[0].ref is None
    assert registry.catalog.artifacts() == []
    assert EventType.VERSION_PUBLISHED not in {e.type for e in registry.events.after(0)}


def test_a_value_can_be_the_input_of_another_run(registry: Registry, tmp_path: Path) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    value = acting.runs.finish(run.id, [stored_dataset(acting, tmp_path / "d")]).outputs[0].value
    (data,) = queue(registry, inputs={"data": value}).inputs
    assert (data.value, data.kind, data.ref) == (value, "dataset", None)


def test_code_that_two_runs_share_is_one_value(registry: Registry, tmp_path: Path) -> None:
    content.write_dataset(tmp_path / "code", {"train.py": b"pass\n"})
    code = registry.catalog.store(tmp_path / "code", "bundle").digest
    values = set()
    for number in range(2):
        run = queue(registry, code=code)
        (claim,) = take(registry)
        acting = registry.acting(claim.origin)
        output = stored_dataset(acting, tmp_path / f"d{number}", b"%d\n" % number)
        made = acting.runs.finish(run.id, [output]).outputs[0].value
        values |= {e.parent for e in registry.lineage.walk(made, depth=1).edges if e.role is Role.CODE}
    assert len(values) == 1


def test_when_an_output_is_refused_nothing_of_the_finish_is_left(registry: Registry, tmp_path: Path) -> None:
    run = queue(registry, publish="made")
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    output = replace(stored_dataset(acting, tmp_path / "d"), parents=(Parent("nothing:v1", Role.PARENT),))
    with pytest.raises(ArtifactNotFound):
        acting.runs.finish(run.id, [output])
    assert registry.runs.get(run.id).state is RunState.RUNNING
    assert registry.catalog.artifacts() == []


def test_a_worker_whose_lease_has_passed_on_can_write_nothing(registry: Registry, tmp_path: Path) -> None:
    run = queue(registry, publish="made")
    (claim,) = take(registry)
    stale = registry.acting(claim.origin)
    output = stored_dataset(stale, tmp_path / "d")
    taken = registry.leases.acquire(run.lease, "reaper", seen=claim.lease)
    assert taken is not None
    registry.acting(replace(claim.origin, authority=taken.authority)).runs.end(run.id, Cause.LOST)
    (again,) = take(registry, "worker-2")

    writes = [
        lambda: stale.runs.finish(run.id, [output]),
        lambda: stale.runs.end(run.id, Cause.ERROR),
        lambda: stale.runs.append_log(run.id, 1, b"late"),
        lambda: stale.runs.note(run.id, 1, {}),
        lambda: stale.catalog.publish("made", tmp_path / "d", "dataset"),
        lambda: stale.runs.queue(RunRequest("another")),
    ]
    for write in writes:
        with pytest.raises(StaleAuthority):
            write()
    assert again.attempt == 2
    assert registry.runs.log(run.id) == []
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.LOST, None]
    assert registry.catalog.artifacts() == []


def test_a_run_is_finished_once(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    acting.runs.finish(run.id, [], result={"loss": 0.5})
    with pytest.raises(StaleAuthority):
        acting.runs.finish(run.id, [], result={"loss": 0.1})
    assert registry.runs.get(run.id).result == {"loss": 0.5}


def test_a_failed_attempt_is_queued_again_while_retries_are_left(registry: Registry) -> None:
    run = queue(registry, retries=1)
    error = RunError("ValueError", "no", "Traceback ...")
    (first,) = take(registry)
    again = registry.acting(first.origin).runs.end(run.id, Cause.ERROR, error)
    assert again.state is RunState.QUEUED
    assert again.not_before is not None
    assert again.not_before > datetime.now(UTC) - timedelta(seconds=5)
    assert take(registry) == []  # its time has not come


def test_an_attempt_that_failed_for_good_keeps_its_error(registry: Registry) -> None:
    run = queue(registry)
    error = RunError("ValueError", "no", "Traceback ...")
    (claim,) = take(registry)
    registry.acting(claim.origin).runs.end(run.id, Cause.ERROR, error)
    failed = registry.runs.get(run.id)
    (attempt,) = registry.runs.attempts(run.id)
    assert (failed.state, failed.error, attempt.error) == (RunState.FAILED, error, error)
    assert (attempt.outcome, attempt.cause) == (RunState.FAILED, Cause.ERROR)
    assert events_of(registry, run) == [
        EventType.RUN_QUEUED,
        EventType.RUN_STARTED,
        EventType.RUN_FAILED,
    ]


def test_ending_what_has_ended_changes_nothing_and_frees_the_lease(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    registry.acting(claim.origin).runs.finish(run.id, [])
    lease = registry.leases.acquire(run.lease, "reaper", seen=claim.lease)
    assert lease is not None
    ended = registry.acting(replace(claim.origin, authority=lease.authority)).runs.end(run.id, Cause.LOST)
    assert ended.state is RunState.SUCCEEDED
    assert registry.leases.get(run.lease) is None


def test_cancelling_fences_what_runs_before_it_ends_it(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    assert registry.runs.cancel(run.id).state is RunState.CANCELLED
    with pytest.raises(StaleAuthority):
        registry.acting(claim.origin).runs.finish(run.id, [])
    assert registry.leases.get(run.lease) is None
    assert events_of(registry, run)[-1] is EventType.RUN_CANCELLED


def test_a_queued_run_that_is_cancelled_is_never_taken(registry: Registry) -> None:
    run = queue(registry)
    registry.runs.cancel(run.id)
    assert take(registry) == []
    assert registry.runs.cancel(run.id).state is RunState.CANCELLED


def test_what_has_ended_cannot_be_cancelled(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    registry.acting(claim.origin).runs.finish(run.id, [])
    with pytest.raises(RunRefused):
        registry.runs.cancel(run.id)
    assert registry.runs.get(run.id).state is RunState.SUCCEEDED


def test_a_failed_run_can_be_recovered_and_one_that_lives_cannot(registry: Registry) -> None:
    run = queue(registry, pool=private_pool())
    with pytest.raises(RunRefused):
        registry.runs.recover(run.id)
    (claim,) = take(registry, pool=run.pool)
    registry.acting(claim.origin).runs.end(run.id, Cause.ERROR)
    recovered = registry.runs.recover(run.id)
    assert (recovered.state, recovered.pool) == (RunState.QUEUED, "default")
    assert take(registry)[0].attempt == 2


def test_what_a_run_prints_is_kept_byte_by_byte_and_in_order(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = take(registry)
    acting = registry.acting(claim.origin)
    printed = [bytes(range(256)), b"\xff\xfe", b"line\r\n"]
    for part in printed:
        acting.runs.append_log(run.id, 1, part)
    parts = registry.runs.log(run.id)
    assert [part.data for part in parts] == printed
    assert registry.runs.log(run.id, after=parts[1].sequence)[0].data == printed[2]
    assert [part.data for part in registry.runs.log(run.id, limit=2)] == printed[:2]
    assert [part.data for part in registry.runs.log(run.id, limit=2, newest=True)] == printed[1:]


def test_events_of_a_run_carry_the_cause_of_its_first_cause(registry: Registry) -> None:
    triggered = registry.acting(
        replace(registry.origin, actor="trigger:support/train", causation="event-1", correlation="c-1")
    )
    run = triggered.runs.queue(RunRequest("train"))
    (claim,) = take(registry)
    registry.acting(claim.origin).runs.finish(run.id, [])
    succeeded = registry.events.after(0)[-1]
    assert (succeeded.actor, succeeded.causation, succeeded.correlation) == (
        f"run:{run.id}",
        "event-1",
        "c-1",
    )
