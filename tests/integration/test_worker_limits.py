"""What workers hold runs to, and what they give them, with real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry import Registry
from registry.conditions import Conditions
from registry.runs import Cause, RunState
from tests.common.registries import Place
from tests.common.workers import Tasks, WorkerProcess

Start = Callable[..., WorkerProcess]

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

SECRET = "a very secret value/with+signs"
MORE_TASKS = """

secretive = TaskEnvironment("secretive", secrets=["PODIUM_TEST_SECRET"])

@secretive.task
def tell(how: str) -> str:
    value = os.environ["PODIUM_TEST_SECRET"]
    print("it is", value, flush=True)
    for letter in value:
        print(letter, end="", flush=True)
    if how == "raise":
        raise ValueError(f"{value} is wrong")
    return f"<{value}>"

@env.task(timeout=1.0)
def slow() -> None:
    time.sleep(600)
"""


@pytest.fixture
def tasks(registry: Registry, tmp_path: Path) -> Tasks:
    made = Tasks(registry, tmp_path)
    made.file.write_text(made.file.read_text() + MORE_TASKS)
    return made


@pytest.fixture
def start(place: Place, tmp_path: Path) -> Iterator[Start]:
    """Starts workers, and ends what is left of them."""
    started: list[WorkerProcess] = []

    def begin(**options: object) -> WorkerProcess:
        started.append(WorkerProcess(place, tmp_path, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for worker in started:
        worker.end()


def test_a_run_that_takes_more_memory_than_it_asked_for_fails_with_the_numbers(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    hungry = tasks.queue("hungry", memory="256Mi", megabytes=400)
    modest = tasks.queue("hungry", memory="256Mi", megabytes=20, seconds=0.5)
    start(lease=10.0)
    failed = tasks.wait_for_end(hungry)
    assert failed.error is not None
    assert (failed.state, failed.cause, failed.error.type) == (
        RunState.FAILED,
        Cause.OUT_OF_MEMORY,
        "OOMError",
    )
    numbers = failed.error.details
    assert numbers["limit"] == 256 * 2**20
    # The kernel lets it have no more than it may; who only looks at it sees more.
    assert numbers["kernel_kills"] or numbers["used"] > numbers["limit"]
    assert tasks.wait_for_end(modest).state is RunState.SUCCEEDED


def test_a_run_that_takes_longer_than_it_may_fails(registry: Registry, tasks: Tasks, start: Start) -> None:
    run = tasks.queue("slow")
    start(lease=10.0)
    failed = tasks.wait_for_end(run)
    assert failed.error is not None
    assert (failed.state, failed.cause) == (RunState.FAILED, Cause.TIMED_OUT)
    assert (failed.error.type, failed.error.details["limit"]) == ("TaskTimeoutError", 1.0)


def test_a_run_that_nobody_can_take_fails_when_it_has_waited_long_enough(
    registry: Registry, tasks: Tasks, start: Start
) -> None:
    run = tasks.queue("make", cpu=64, conditions=Conditions(queue_timeout=0.5))
    start()
    failed = tasks.wait_for_end(run)
    assert failed.error is not None and failed.error.type == "TaskTimeoutError"
    assert registry.runs.attempts(run.id) == []


@pytest.mark.parametrize("how", ["raise", "return"])
def test_a_secret_reaches_its_task_and_nothing_that_is_recorded(
    registry: Registry, place: Place, tasks: Tasks, start: Start, how: str
) -> None:
    run = tasks.queue("tell", how=how)
    worker = start(lease=10.0, PODIUM_TEST_SECRET=SECRET)
    ended = tasks.wait_for_end(run)
    log = b"".join(part.data for part in registry.runs.log(run.id)).decode()
    assert log.count("[removed]") >= 2
    if how == "return":
        assert ended.result == "<[removed]>"
    else:
        assert ended.error is not None
        assert (ended.error.type, ended.error.message) == ("ValueError", "[removed] is wrong")
    worker.terminate()
    registry.close()
    left = [path for path in place.settings.home.rglob("*") if path.is_file()]
    assert left
    assert not [path for path in left if SECRET.encode() in path.read_bytes()]
    assert SECRET not in worker.said()


def test_a_run_whose_secret_is_not_there_says_which(registry: Registry, tasks: Tasks, start: Start) -> None:
    run = tasks.queue("tell", how="return")
    start(lease=10.0)
    failed = tasks.wait_for_end(run)
    assert failed.error is not None
    assert failed.error.type == "ImagePullBackOffError"
    assert "PODIUM_TEST_SECRET" in failed.error.message
