from __future__ import annotations

import pytest

from registry.runs import (
    ENDED,
    LONGEST_BACKOFF,
    MOST_INTERRUPTIONS,
    MOST_KILLS,
    SPENDS_RETRY,
    TRANSITIONS,
    Cause,
    RunState,
    after_attempt,
    pool_after,
    private_pool,
)


def test_a_failure_is_tried_again_until_no_retry_is_left() -> None:
    states = [after_attempt(2, [Cause.ERROR] * n, Cause.ERROR).state for n in range(4)]
    assert states == [RunState.QUEUED, RunState.QUEUED, RunState.FAILED, RunState.FAILED]


def test_retries_wait_longer_each_time_and_never_without_end() -> None:
    delays = [after_attempt(99, [Cause.ERROR] * n, Cause.ERROR).delay for n in range(30)]
    assert delays == sorted(delays)
    assert delays[0] == 1.0
    assert delays[-1] == LONGEST_BACKOFF


@pytest.mark.parametrize("cause", [Cause.LOST, Cause.PREEMPTED, Cause.UNCONFIRMED, Cause.KILLED])
def test_what_its_worker_did_spends_no_retry(cause: Cause) -> None:
    assert after_attempt(0, [cause] * (MOST_KILLS - 1), cause).state is RunState.QUEUED
    assert after_attempt(1, [cause] * 3, Cause.ERROR).state is RunState.QUEUED


def test_a_run_that_kills_what_it_runs_on_is_not_tried_for_ever() -> None:
    assert after_attempt(9, [Cause.LOST] * MOST_INTERRUPTIONS, Cause.LOST).state is RunState.INTERRUPTED
    assert after_attempt(0, [Cause.KILLED] * MOST_KILLS, Cause.KILLED).state is RunState.FAILED


def test_a_kill_that_repeats_itself_spends_retries_and_one_at_another_place_does_not() -> None:
    def follows(retries: int, kills: int) -> RunState:
        return after_attempt(retries, [Cause.KILLED] * 9, Cause.KILLED, kills=kills).state

    assert [follows(0, n) for n in (0, MOST_KILLS - 1, MOST_KILLS)] == [RunState.QUEUED] * 2 + [
        RunState.FAILED
    ]
    assert [follows(2, MOST_KILLS + n) for n in range(4)] == [RunState.QUEUED] * 2 + [RunState.FAILED] * 2


def test_what_cannot_be_used_is_not_tried_again() -> None:
    assert after_attempt(9, [], Cause.INVALID).state is RunState.FAILED


@pytest.mark.parametrize("cause", Cause)
def test_whatever_follows_is_allowed_from_running(cause: Cause) -> None:
    assert after_attempt(1, [], cause).state in TRANSITIONS[RunState.RUNNING]


def test_every_state_is_in_the_table_and_success_is_final() -> None:
    assert set(TRANSITIONS) == set(RunState)
    assert not TRANSITIONS[RunState.SUCCEEDED]
    assert RunState.RUNNING not in {s for end in ENDED for s in TRANSITIONS[end]}


def test_others_may_take_the_run_of_a_private_worker_that_is_gone() -> None:
    private = private_pool()
    assert pool_after(private, Cause.LOST) == "default"
    assert pool_after(private, Cause.ERROR) == private
    assert pool_after("gpu", Cause.LOST) == "gpu"
    assert Cause.LOST not in SPENDS_RETRY
