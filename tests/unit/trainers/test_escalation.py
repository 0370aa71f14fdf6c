from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from registry.errors import InvalidInput
from registry.resources import Resources
from registry.runs import RunRequest, Worker
from trainers.errors import NoWorker, OOMError
from trainers.escalation import Shrink, escalate
from trainers.placing import check_possible
from trainers.tasks import TaskEnvironment

env = TaskEnvironment("small", resources=Resources(gpu="L4:1"))
LARGE, LARGER = Resources(gpu="A100:1"), Resources(gpu="H200:1")


class Machine:
    """Runs out of memory above a batch; what was tried on which resources."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **fits: int) -> None:
        self.tried: list[tuple[str, int, int]] = []

        @env.task
        async def train(batch_size: int = 8, gradient_accumulation: int = 1) -> int:
            raise AssertionError

        def call(task: object, batch_size: int, gradient_accumulation: int) -> int:
            kind = str(task.resources.gpu).partition(":")[0]  # type: ignore[attr-defined]
            self.tried.append((kind, batch_size, gradient_accumulation))
            if batch_size > fits.get(kind, 0):
                raise OOMError("no", where="cuda")
            return batch_size * gradient_accumulation

        monkeypatch.setattr(type(train), "__call__", call)
        self.task = train


def test_a_batch_is_halved_and_its_sum_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, L4=2)
    assert asyncio.run(escalate(machine.task, shrink=Shrink(), resources=[LARGE])) == 8
    assert machine.tried == [("L4", 8, 1), ("L4", 4, 2), ("L4", 2, 4)]


def test_what_does_not_shrink_any_more_moves_with_its_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, H200=8)
    asyncio.run(escalate(machine.task, shrink=Shrink(smallest=4), resources=[LARGE, LARGER]))
    assert machine.tried == [("L4", 8, 1), ("L4", 4, 2), ("A100", 8, 1), ("A100", 4, 2), ("H200", 8, 1)]


def test_without_a_shrink_only_the_place_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, A100=3)
    assert asyncio.run(escalate(machine.task, batch_size=3, resources=[LARGE])) == 3
    assert machine.tried == [("L4", 3, 1), ("A100", 3, 1)]


def test_the_last_error_is_raised_when_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    with pytest.raises(OOMError):
        asyncio.run(escalate(machine.task, batch_size=6, shrink=Shrink()))
    assert [batch for _, batch, _ in machine.tried] == [6, 3]


def test_a_task_without_such_parameters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="'size'"):
        asyncio.run(escalate(Machine(monkeypatch).task, shrink=Shrink("size")))


def worker(resources: Resources) -> Worker:
    now = datetime.now(UTC)
    return Worker("w", "default", resources, "host", "process", now, now)


def test_resources_that_no_living_worker_has_are_refused_by_name() -> None:
    request = RunRequest("train", resources=Resources(cpu=2, gpu="H200:1"))
    small, large = worker(Resources(cpu=1)), worker(Resources(cpu=8, gpu="L4:4"))
    with pytest.raises(NoWorker, match=r"'train' asks for: gpu H200:1\.") as raised:
        check_possible(request, [small, large])
    assert raised.value.details["lacking"] == ["gpu"]
    check_possible(request, [small, worker(Resources(cpu=2, gpu="H200:8"))])
    check_possible(request, [])  # one may be on its way
