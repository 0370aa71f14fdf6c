from __future__ import annotations

import signal
from pathlib import Path

import pytest

from registry.errors import InvalidInput
from registry.runs import Cause, NewOutput, RunError
from registry.values import Parent, Role
from trainers.binding import Outcome
from trainers.execution import Ended, Ending
from trainers.outcome import describe, read_outcome, write_failure, write_outcome
from trainers.settling import End, Finish, settle

MADE = Outcome((NewOutput("result", "adapter", "sha256:" + "0" * 64),))
FAILED = (Cause.ERROR, RunError("ValueError", "no"))


@pytest.mark.parametrize(
    ("ended", "said", "decided"),
    [
        (Ended(Ending.EXITED, 0), MADE, Finish(MADE)),
        (Ended(Ending.STOPPED, 0), MADE, Finish(MADE)),  # it was done before it heard the request
        (Ended(Ending.EXITED, 1), FAILED, End(*FAILED)),
        (Ended(Ending.STOPPED, -signal.SIGTERM), None, End(Cause.PREEMPTED)),
        (Ended(Ending.STOPPED, 1), FAILED, End(Cause.PREEMPTED)),  # its failure is that it was stopped
        (Ended(Ending.EXITED, -signal.SIGTERM), None, End(Cause.PREEMPTED)),  # asked by somebody else
        (Ended(Ending.UNCONFIRMED, -signal.SIGKILL), None, End(Cause.UNCONFIRMED)),
        (Ended(Ending.ABANDONED, -signal.SIGKILL), None, End(Cause.LOST)),
    ],
)
def test_the_end_follows_from_the_processes_and_what_they_said(
    ended: Ended, said: Outcome | tuple[Cause, RunError] | None, decided: Finish | End
) -> None:
    assert settle(ended, said) == decided


@pytest.mark.parametrize("status", [0, 3, -signal.SIGSEGV, -200])
def test_a_process_that_ends_without_a_word_has_crashed(status: int) -> None:
    decided = settle(Ended(Ending.EXITED, status), None)
    assert isinstance(decided, End)
    assert decided.cause is Cause.CRASHED
    assert decided.error is not None


def test_a_process_that_somebody_killed_has_not_failed() -> None:
    decided = settle(Ended(Ending.EXITED, -signal.SIGKILL), None)
    assert isinstance(decided, End)
    assert decided.cause is Cause.KILLED


def test_a_result_of_a_process_that_crashed_afterwards_does_not_count() -> None:
    decided = settle(Ended(Ending.EXITED, -signal.SIGSEGV), MADE)
    assert isinstance(decided, End)
    assert decided.cause is Cause.CRASHED


def test_an_outcome_comes_out_of_its_file_as_it_went_in(tmp_path: Path) -> None:
    output = NewOutput("result", "adapter", "sha256:1", (Parent("x:v1", Role.BASE),), {"rank": 8})
    write_outcome(tmp_path, Outcome((output,), {"loss": 1.5}))
    assert read_outcome(tmp_path) == Outcome((output,), {"loss": 1.5})
    write_failure(tmp_path, *FAILED)
    assert read_outcome(tmp_path) == FAILED


def test_no_outcome_is_told_from_an_empty_one(tmp_path: Path) -> None:
    assert read_outcome(tmp_path) is None
    write_outcome(tmp_path, Outcome())
    assert read_outcome(tmp_path) == Outcome()


def test_bad_input_is_not_worth_another_attempt_and_keeps_its_remedy() -> None:
    cause, error = describe(InvalidInput("The file is empty.", remedy="Push another."))
    assert (cause, error.type, error.remedy) == (Cause.INVALID, "InvalidInput", "Push another.")


def test_what_must_stay_secret_is_not_in_an_error() -> None:
    token = "hf_" + "a" * 34
    try:
        raise ValueError(f"401 for token={token}")
    except ValueError as raised:
        _, error = describe(raised)
    assert token not in error.message + error.traceback
    assert error.type == "ValueError"


@pytest.mark.parametrize(
    ("ending", "cause", "type", "words"),
    [
        (
            Ending.OUT_OF_MEMORY,
            Cause.OUT_OF_MEMORY,
            "OOMError",
            "took 300 MiB of memory, and may take 200 MiB",
        ),
        (Ending.TIMED_OUT, Cause.TIMED_OUT, "TaskTimeoutError", "may run 209715200.0 s"),
    ],
)
def test_what_took_more_than_it_may_says_how_much(
    ending: Ending, cause: Cause, type: str, words: str
) -> None:
    numbers = {"limit": 200 * 2**20, "used": 300 * 2**20}
    decided = settle(Ended(ending, -signal.SIGKILL, numbers), FAILED)
    assert isinstance(decided, End) and decided.error is not None
    assert (decided.cause, decided.error.type) == (cause, type)
    assert words in decided.error.message
    assert decided.error.details.items() >= numbers.items()


def test_memory_that_the_kernel_refused_is_told_as_that() -> None:
    numbers = {"limit": 200 * 2**20, "used": 200 * 2**20, "kernel_kills": 1}
    decided = settle(Ended(Ending.OUT_OF_MEMORY, -signal.SIGKILL, numbers), FAILED)
    assert isinstance(decided, End) and decided.error is not None
    assert "wanted more memory than the 200 MiB" in decided.error.message
    assert decided.error.details["kernel_kills"] == 1
