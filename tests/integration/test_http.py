"""A team's server for real: over PostgreSQL and a bucket, for workers and commands that have only a token."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from registry.content.blobs import open_store
from registry.http.app import create_app
from registry.http.serving import Running, bound
from registry.identity.roles import TeamRole
from registry.protocol import Registry
from registry.runs import RunState
from registry.wire import headers
from tests.common.content import read_folder, some_bytes, write_dataset
from tests.common.http import TestServer
from tests.common.registries import Place, ServedPlace
from tests.common.workers import PODIUM, Tasks, WorkerProcess


@pytest.fixture
def place(sqlite_place: Place, http_server: TestServer) -> Iterator[ServedPlace]:
    """A server over SQLite that takes a worker for dead after two seconds."""
    place = http_server.serve(sqlite_place, lease_seconds=2.0)
    yield place
    place.close()
    http_server.rest()


@pytest.fixture
def tasks(registry: Registry, tmp_path: Path) -> Tasks:
    return Tasks(registry, tmp_path)


@pytest.fixture
def behind_servers(server_place: Place) -> Iterator[ServedPlace]:
    """A server of its own over PostgreSQL and S3: it ends before its database is emptied."""
    registry = server_place.open()
    token = registry.identity.issue("ada", TeamRole.ADMIN).secret
    with Running(create_app(registry, pages=False), bound("127.0.0.1", 0)) as running:
        place = ServedPlace(server_place.settings, server_place.variables, url=running.url, token=token)
        yield place
        place.close()


def test_content_goes_to_the_bucket_and_comes_from_there_past_the_server(
    behind_servers: ServedPlace, tmp_path: Path
) -> None:
    files = {"a.bin": some_bytes(3_000_000), "deep/b.txt": b"text", "empty": b""}
    folder = write_dataset(tmp_path / "content", files)
    registry = behind_servers.open()
    published = registry.catalog.publish("data", folder, "dataset")
    assert published.bytes_sent == 3_000_004
    registry.catalog.pull("data:v1", tmp_path / "out")
    assert read_folder(tmp_path / "out") == files
    again = registry.catalog.publish("data", folder, "dataset")
    assert (again.created, again.bytes_sent) == (False, 0)


def test_an_upload_that_was_cut_sends_what_is_missing(behind_servers: ServedPlace, tmp_path: Path) -> None:
    files = {"a.bin": some_bytes(2_000_000), "b.bin": some_bytes(1_000_000, seed=9)}
    folder = write_dataset(tmp_path / "content", files)
    registry = behind_servers.open()
    registry.catalog.store(folder, "dataset")
    assert behind_servers.settings.blobs is not None
    store = open_store(behind_servers.settings.blobs)
    lost = next(info for info in store.list() if info.size == 1_000_000)
    store.delete(lost.key)
    assert registry.catalog.publish("data", folder, "dataset").bytes_sent == 1_000_000
    store.close()


@pytest.fixture
def balanced(behind_servers: ServedPlace, server_place: Place) -> Iterator[list[httpx.Client]]:
    """Clients of two servers over one PostgreSQL, which share nothing else, as behind a balancer."""
    head = {"authorization": f"Bearer {behind_servers.token}"}
    with Running(create_app(server_place.open(), pages=False), bound("127.0.0.1", 0)) as other:
        clients = [
            httpx.Client(base_url=url + headers.PREFIX, headers=head, timeout=60)
            for url in (behind_servers.url, other.url)
        ]
        yield clients
        for client in clients:
            client.close()


def test_promotions_through_either_of_two_servers_are_one_history(
    behind_servers: ServedPlace, balanced: list[httpx.Client], tmp_path: Path
) -> None:
    registry = behind_servers.open()
    for number in (1, 2):
        folder = write_dataset(tmp_path / str(number), {"a.txt": str(number).encode()})
        registry.catalog.publish("data", folder, "dataset")

    def promote(turn: int) -> int:
        given = {headers.IDEMPOTENCY: f"promotion-{turn // 2}"}  # sent to both, at about the same time
        path, body = f"/versions/data:v{turn // 2 % 2 + 1}/promotions", {"alias": f"a-{turn // 2 % 3}"}
        return balanced[turn % 2].post(path, json=body, headers=given).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(promote, range(48))) == {200}
    for alias in ("a-0", "a-1", "a-2"):
        history = registry.promotions.history("data", alias)
        generations = [each.generation for each in history]
        assert generations == list(range(len(history), 0, -1))
        assert [each.from_version for each in history[:-1]] == [each.to_version for each in history[1:]]
    trail = [e for e in registry.identity.audit(limit=100) if e.operation == "promotions.promote"]
    assert len(trail) == 24  # one of each pair did it, and the other was given its answer


def test_a_transaction_that_another_server_holds_writes_nothing(balanced: list[httpx.Client]) -> None:
    here, there = balanced
    opened = here.post("/transactions").json()["id"]
    body, part_of = {"name": "carol", "role": "viewer"}, {headers.TRANSACTION: opened}
    refused = there.post("/tokens", json=body, headers=part_of)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert "same server" in refused.json()["remedy"]
    assert here.post(f"/transactions/{opened}/commit").status_code == 204
    assert [each["name"] for each in there.get("/tokens").json()] == ["ada"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", ["run.claimed", "run.ended", "run.finished"])
def test_a_worker_with_a_token_that_is_killed_anywhere_leaves_a_run_that_ends_once(
    registry: Registry, place: ServedPlace, tasks: Tasks, tmp_path: Path, point: str
) -> None:
    trainer = place.beneath().identity.issue("gpu-node", TeamRole.TRAINER).secret
    run = tasks.queue("make", publish="made")
    killed = WorkerProcess(place, tmp_path, PODIUM_CRASH_AT=point, PODIUM_TOKEN=trainer)
    assert killed.wait_for_end() == -signal.SIGKILL
    other = WorkerProcess(place, tmp_path, PODIUM_TOKEN=trainer)
    try:
        ended = tasks.wait_for_end(run)
    finally:
        other.end()
    assert ended.state is RunState.SUCCEEDED
    assert [v.run for v in registry.catalog.versions("made")] == [run.id]
    assert registry.leases.held("run/") == []
    assert trainer not in "".join(path.read_text() for path in tmp_path.glob("worker-*.log"))


def _podium(place: ServedPlace, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **place.environment}
    return subprocess.run(
        [PODIUM, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.timeout(120)
def test_commands_do_the_same_through_a_server(place: ServedPlace, tmp_path: Path) -> None:
    for number in (1, 2):
        folder = write_dataset(tmp_path / str(number), {"a.txt": str(number).encode()})
        pushed = _podium(place, "push", "data", str(folder), "--kind", "dataset", "--json")
        assert json.loads(pushed.stdout)["ref"] == f"data:v{number}", pushed.stderr
        assert _podium(place, "promote", f"data:v{number}", "production").returncode == 0
    assert _podium(place, "rollback", "data", "production").returncode == 0
    history = json.loads(_podium(place, "history", "data", "--json").stdout)
    assert [each["to"] for each in history] == ["v1", "v2", "v1"]
    assert _podium(place, "pull", "data:production", str(tmp_path / "out")).returncode == 0
    assert (tmp_path / "out/a.txt").read_text() == "1"
    refused = _podium(place, "promote", "data:v2", "production", "--expect", "v9", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (1, "alias_moved")
    made = json.loads(_podium(place, "token", "add", "carol", "--role", "viewer", "--json").stdout)
    assert made["token"].startswith("podium_")
