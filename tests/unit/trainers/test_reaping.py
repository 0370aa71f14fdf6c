from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from registry import Registry
from registry.conditions import Conditions
from registry.resources import Resources
from registry.runs import Cause, RunRequest, RunState
from registry.values import Lease
from tests.common.registries import Place
from trainers.reaping import LeaseWatch, Reaper
from trainers.service import reaper

LEASE = Lease("run/1", "worker-1", epoch=1, beat=0)


def test_a_lease_is_stale_when_no_beat_was_seen_for_a_whole_term() -> None:
    watch = LeaseWatch(term=10)
    assert watch.look([LEASE], now=100) == []
    assert watch.look([LEASE], now=109.9) == []
    assert watch.look([LEASE], now=110) == [LEASE]


def test_a_beat_starts_the_term_again() -> None:
    watch = LeaseWatch(term=10)
    watch.look([LEASE], now=100)
    beaten = replace(LEASE, beat=1)
    assert watch.look([beaten], now=109) == []
    assert watch.look([beaten], now=118) == []
    assert watch.look([beaten], now=119) == [beaten]


def test_a_new_epoch_starts_the_term_again() -> None:
    watch = LeaseWatch(term=10)
    watch.look([LEASE], now=100)
    assert watch.look([replace(LEASE, epoch=2)], now=111) == []


def test_a_lease_that_was_free_in_between_is_looked_at_afresh() -> None:
    watch = LeaseWatch(term=10)
    watch.look([LEASE], now=100)
    watch.look([], now=105)
    assert watch.look([LEASE], now=111) == []


def test_a_run_that_its_worker_left_is_queued_again(registry: Registry) -> None:
    run = registry.runs.queue(RunRequest("train"))
    room = Resources()
    registry.runs.claim("worker-1", free=room, total=room)
    said: list[str] = []
    reaper = Reaper(registry, "worker-2", 0.0, said.append)
    reaper.look(carried=())
    assert registry.runs.get(run.id).state is RunState.QUEUED
    assert registry.leases.get(run.lease) is None
    assert said == [f"run {run.id}: left by worker-1, now queued"]


def test_a_reaper_leaves_its_own_runs_alone(registry: Registry) -> None:
    run = registry.runs.queue(RunRequest("train"))
    room = Resources()
    registry.runs.claim("worker-1", free=room, total=room)
    Reaper(registry, "worker-1", 0.0, print).look(carried=[run.lease])
    assert registry.runs.get(run.id).state is RunState.RUNNING


def test_a_claim_whose_answer_was_lost_is_found_by_the_worker_that_made_it(registry: Registry) -> None:
    run = registry.runs.queue(RunRequest("train"))
    room = Resources()
    registry.runs.claim("worker-1", free=room, total=room)
    reaper = Reaper(registry, "worker-1", 1000.0, print)
    reaper.look(carried=())
    assert registry.runs.get(run.id).state is RunState.RUNNING  # the answer may be on its way
    Reaper(registry, "worker-1", 0.0, print).look(carried=())
    assert registry.runs.get(run.id).state is RunState.QUEUED


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_runs_are_looked_after_where_no_worker_lives(place: Place) -> None:
    registry = place.open(lease_seconds=0.5)
    room = Resources(cpu=1)
    late = registry.runs.queue(RunRequest("late", conditions=Conditions(queue_timeout=1e-6)))
    registry.runs.queue(RunRequest("left", resources=room))
    (left,) = registry.runs.claim("gone", free=room, total=room, only=None)
    said: list[str] = []

    async def until_both_are_seen() -> None:
        stop = asyncio.Event()
        looking = asyncio.create_task(reaper(registry, stop, lambda line, **_: said.append(line), {}))
        seen = {f"run {late.id}: waited too long, now failed", f"run {left.run.id}: left by gone, now queued"}
        while not seen <= set(said):
            await asyncio.sleep(0.05)
        stop.set()
        await looking

    asyncio.run(asyncio.wait_for(until_both_are_seen(), 20))
    assert registry.runs.attempts(left.run.id)[0].cause is Cause.LOST
