"""Workers while their database is away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from registry.runs import Cause, RunState
from registry.settings import Settings
from tests.common.postgres import PostgresServer
from tests.common.registries import Place
from tests.common.services import temporary_folder
from tests.common.waiting import wait_until
from tests.common.workers import Tasks, WorkerProcess, wait_for_end


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test's own, which it may kill."""
    folder = temporary_folder("postgres")
    server = PostgresServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def place(server: PostgresServer, tmp_path: Path) -> Iterator[Place]:
    place = Place(Settings(home=tmp_path / "home", url=SecretStr(server.database()), actor="ada"))
    yield place
    place.close()


@pytest.fixture
def worker(place: Place, tmp_path: Path) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(place, tmp_path)
    yield worker
    worker.end()


@pytest.fixture
def tasks(place: Place, tmp_path: Path) -> Tasks:
    return Tasks(place.open(), tmp_path)


def _none_lives(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_a_run_whose_lease_cannot_be_confirmed_ends_itself_and_is_done_again_later(
    place: Place, server: PostgresServer, tasks: Tasks, worker: WorkerProcess
) -> None:
    run = tasks.queue("make", gate="go", publish="made")
    tasks.wait_for_executions(1)
    processes = worker.carrying()
    server.kill()
    wait_until(lambda: _none_lives(processes), 30, worker.said)
    assert "its leases cannot be confirmed" in worker.said()
    server.start()
    tasks.open("go")
    registry = place.open()
    assert wait_for_end(registry, run.id).state is RunState.SUCCEEDED
    assert [a.cause for a in registry.runs.attempts(run.id)] == [Cause.UNCONFIRMED, None]
    assert [v.run for v in registry.catalog.versions("made")] == [run.id]


def test_a_short_outage_costs_a_run_nothing(
    place: Place, server: PostgresServer, tasks: Tasks, tmp_path: Path
) -> None:
    patient = WorkerProcess(place, tmp_path, lease=60.0)
    try:
        run = tasks.queue("make", gate="go")
        tasks.wait_for_executions(1)
        server.kill()
        tasks.open("go")  # it comes to its end while nobody can be told
        wait_until((tasks.outside / "made-x").exists, 30, patient.said)
        server.start()
        assert wait_for_end(place.open(), run.id).state is RunState.SUCCEEDED
        assert tasks.executions() == ["x"]
    finally:
        patient.end()
