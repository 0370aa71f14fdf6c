"""Queued runs that may not wait for ever."""

from __future__ import annotations

from datetime import timedelta

from registry import Registry
from registry.conditions import Conditions
from registry.resources import Resources
from registry.runs import Cause, RunRequest, RunState

ROOM = Resources(cpu=64, memory="64Gi")


def test_a_run_that_waits_longer_than_it_may_fails(registry: Registry) -> None:
    patient = registry.runs.queue(RunRequest("train"))
    hasty = registry.runs.queue(RunRequest("train", conditions=Conditions(queue_timeout=1e-6)))
    assert [run.id for run in registry.runs.expire()] == [hasty.id]
    failed = registry.runs.get(hasty.id)
    assert (failed.state, failed.conditions) == (RunState.FAILED, hasty.conditions)
    assert failed.error is not None and failed.error.type == "TaskTimeoutError"
    assert registry.runs.expire() == []
    assert [claim.run.id for claim in registry.runs.claim("w", free=ROOM, total=ROOM)] == [patient.id]


def test_a_run_that_waits_longer_than_it_may_is_seen_to_have_failed_though_no_worker_lives(
    registry: Registry,
) -> None:
    asked = RunRequest("train", conditions=Conditions(queue_timeout=1e-6))
    hasty, listed = registry.runs.queue(asked), registry.runs.queue(asked)
    assert registry.runs.get(hasty.id).state is RunState.FAILED
    assert {run.state for run in registry.runs.list()} == {RunState.FAILED}
    assert [e.type for e in registry.events.tail(limit=2)] == ["podium.run.failed"] * 2
    assert registry.runs.get(listed.id).error == registry.runs.list(limit=1)[0].error


def test_a_run_that_a_worker_has_taken_does_not_wait_any_more(registry: Registry) -> None:
    registry.runs.queue(RunRequest("train", conditions=Conditions(queue_timeout=1e-6)))
    assert len(registry.runs.claim("w", free=ROOM, total=ROOM)) == 1
    assert registry.runs.expire() == []


def test_no_retry_follows_after_the_deadline(registry: Registry) -> None:
    asked = RunRequest("train", retries=5, conditions=Conditions(deadline=0.5, backoff=10))
    registry.runs.queue(asked)
    (claim,) = registry.runs.claim("w", free=ROOM, total=ROOM)
    ended = registry.acting(claim.origin).runs.end(claim.run.id, Cause.ERROR)
    assert ended.state is RunState.FAILED


def test_a_retry_waits_as_long_as_the_task_says(registry: Registry) -> None:
    registry.runs.queue(RunRequest("train", retries=1, conditions=Conditions(backoff=100)))
    (claim,) = registry.runs.claim("w", free=ROOM, total=ROOM)
    ended = registry.acting(claim.origin).runs.end(claim.run.id, Cause.ERROR)
    assert ended.not_before is not None and ended.started_at is not None
    assert ended.not_before - ended.started_at > timedelta(seconds=90)


def test_a_run_that_is_recovered_may_wait_anew(registry: Registry) -> None:
    run = registry.runs.queue(RunRequest("train", conditions=Conditions(queue_timeout=1e-6)))
    registry.runs.expire()
    assert registry.runs.recover(run.id).state is RunState.QUEUED
    assert [each.id for each in registry.runs.expire()] == [run.id]
