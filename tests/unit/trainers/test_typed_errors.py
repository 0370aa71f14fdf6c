"""Errors on their way from a task's process through the journal to its caller."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from registry.errors import InvalidInput
from registry.resources import Resources
from registry.runs import Cause, Run, RunError, RunState, after_attempt
from trainers import errors
from trainers.errors import NonRecoverableError, OOMError, RemoteError, TaskError
from trainers.outcome import describe
from trainers.raising import failure

TORCH_TEXT = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 22.05 GiB of which "
    "1.50 GiB is free. Including non-PyTorch memory, this process has 20.54 GiB memory in use."
)


class OutOfMemoryError(RuntimeError):
    """As torch names it; CUDA need not be there."""

    __module__ = "torch"


class ChildFailedError(Exception):
    """As torchrun names it."""


class Demanding(ValueError):
    """One that cannot be made from a message alone."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.first = first


class Unreasonable(Exception):
    def __new__(cls, *args: object, needed: int) -> Unreasonable:
        return super().__new__(cls, *args)

    def __init__(self, *args: object, needed: int) -> None:
        super().__init__(*args)


def journalled(error: BaseException) -> tuple[Cause, RunError]:
    """What `describe` says, after it was stored as JSON."""
    try:
        raise error
    except BaseException as raised:
        cause, described = describe(raised)
    return cause, RunError(**json.loads(json.dumps(asdict(described))))


def ended(
    error: RunError | None = None, state: RunState = RunState.FAILED, cause: Cause | None = None
) -> Run:
    return Run(
        *("run-1", "train.py:train", state, {}, (), (), None, Resources(), "default", None, 0, 1, "me"),
        queued_at=datetime.now(UTC),
        error=error,
        cause=cause,
    )


def crossed(error: BaseException) -> TaskError:
    """What a driver catches when a step has raised ``error``."""
    return failure(ended(journalled(error)[1]))


def test_an_accelerators_lack_of_memory_crosses_with_its_numbers() -> None:
    cause, _ = journalled(OutOfMemoryError(TORCH_TEXT))
    caught = crossed(OutOfMemoryError(TORCH_TEXT))
    assert cause is Cause.OUT_OF_MEMORY
    assert isinstance(caught, OOMError)
    numbers = {name: caught.details[name] for name in ("where", "device", "requested", "total", "free")}
    assert numbers == {
        "where": "cuda",
        "device": 1,
        "requested": 20 * 2**30,
        "total": int(22.05 * 2**30),
        "free": int(1.5 * 2**30),
    }
    assert "raise error" in caught.remote_traceback
    assert caught.message == TORCH_TEXT


def test_the_torch_that_is_installed_is_recognised() -> None:
    torch = pytest.importorskip("torch")
    assert journalled(torch.OutOfMemoryError("no"))[1].type == "OOMError"
    assert journalled(torch.cuda.OutOfMemoryError("no"))[1].type == "OOMError"


def test_torchruns_failed_child_is_looked_into() -> None:
    text = f"train.py FAILED\n  rank : 1\n  traceback : torch.OutOfMemoryError: {TORCH_TEXT}"
    assert crossed(ChildFailedError(text)).details["requested"] == 20 * 2**30
    assert type(crossed(ChildFailedError("train.py FAILED\n exitcode: 1"))).__name__ == "ChildFailedError"


def test_what_was_raised_from_a_lack_of_memory_is_one() -> None:
    error = ValueError("the batch did not fit")
    error.__cause__ = MemoryError()
    assert crossed(error).details["where"] == "host"


def test_an_error_of_the_tasks_own_keeps_its_type_message_and_traceback() -> None:
    caught = crossed(KeyError("label"))
    assert isinstance(caught, RemoteError) and isinstance(caught, KeyError)
    assert (type(caught).__name__, str(caught)) == ("KeyError", "'label'")
    assert caught.details["run"] == "run-1"
    assert any("raise error" in note for note in caught.__notes__)


@pytest.mark.parametrize(
    "error", [Demanding(1, 2), UnicodeDecodeError("utf8", b"x", 0, 1, "no"), OSError(2, "no")]
)
def test_classes_that_ask_for_more_than_a_message_are_caught_by_their_type(error: Exception) -> None:
    caught = crossed(error)
    assert isinstance(caught, type(error)) and isinstance(caught, RemoteError)
    assert str(caught) == str(error)


@pytest.mark.parametrize(
    ("error", "name"), [(Unreasonable(needed=1), "Unreasonable"), (SystemExit(3), "SystemExit")]
)
def test_what_cannot_be_that_type_has_at_least_its_name(error: BaseException, name: str) -> None:
    caught = crossed(error)
    assert isinstance(caught, RemoteError)
    assert type(caught).__name__ == name


def test_a_type_that_cannot_be_imported_has_its_name() -> None:
    caught = failure(ended(RunError("Odd", "no", details={"class": "no.such.module:Odd"})))
    assert isinstance(caught, RemoteError) and type(caught).__name__ == "Odd"


def test_an_error_that_a_driver_lets_pass_stays_what_it_was() -> None:
    first = crossed(KeyError("label"))
    cause, described = journalled(first)
    again = failure(ended(described))
    assert (cause, described.type) == (Cause.ERROR, "KeyError")
    assert isinstance(again, KeyError)
    assert journalled(crossed(OutOfMemoryError(TORCH_TEXT)))[0] is Cause.ERROR  # the driver has memory enough


def test_an_error_that_another_attempt_cannot_mend_spends_no_retry() -> None:
    cause, described = journalled(NonRecoverableError("the licence is revoked", licence=7))
    assert after_attempt(5, [], cause).state is RunState.FAILED
    assert after_attempt(5, [], Cause.OUT_OF_MEMORY).state is RunState.QUEUED
    caught = failure(ended(described))
    assert isinstance(caught, NonRecoverableError) and caught.details["licence"] == 7
    assert journalled(caught)[0] is Cause.NON_RECOVERABLE  # nor does it when its caller lets it pass


def test_what_cannot_be_used_is_final() -> None:
    assert journalled(InvalidInput("no"))[0] is Cause.INVALID


@pytest.mark.parametrize(
    ("state", "cause", "cls"),
    [
        (RunState.CANCELLED, Cause.CANCELLED, errors.TaskCancelledError),
        (RunState.INTERRUPTED, Cause.PREEMPTED, errors.TaskInterruptedError),
        (RunState.FAILED, None, RemoteError),
    ],
)
def test_an_end_without_an_error_has_a_type(state: RunState, cause: Cause | None, cls: type) -> None:
    assert isinstance(failure(ended(state=state, cause=cause)), cls)


def test_secrets_in_details_are_removed() -> None:
    error = InvalidInput("no", api_key="abc", url="https://me:pw@host/")
    assert "abc" not in str(journalled(error)[1]) and "pw" not in str(journalled(error)[1].details)
