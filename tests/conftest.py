"""Fixtures that the tiers share. Servers are real, on free ports, and end with the test run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from registry import Registry
from tests.common import models, registries
from tests.common.http import TestServer
from tests.common.postgres import PostgresServer
from tests.common.registries import Maker, Place, ServedPlace
from tests.common.services import Bucket, NatsServer, S3Server, temporary_folder

_TESTS = Path(__file__).parent
_TIERS = ("unit", "simulation", "integration", "acceptance")


def _tier(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the tier whose folder they are in, cheap tiers first, shuffled inside each."""
    has_gpu = shutil.which("nvidia-smi") is not None
    for item in items:
        if _tier(item) in ("integration", "acceptance"):
            item.add_marker(_tier(item))
        if "gpu" in item.keywords and not has_gpu:
            item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA GPU"))
    # What starts processes is asked of a server in tests/integration/test_http.py alone: once more for each
    # of the others would cost minutes.
    items[:] = [item for item in items if _tier(item) == "unit" or not _is_over_http(item)]
    items.sort(key=_cost)


def _is_over_http(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    return parameters is not None and parameters.params.get("place") == "http"


def _cost(item: pytest.Item) -> int:
    """A unit test that runs once more on real servers comes after those that need none."""
    return max(_TIERS.index(name) for name in _TIERS if name == _tier(item) or name in item.keywords)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """Set up first, so checked last: each process that a test started has ended by then."""
    yield
    left = [child for child in psutil.Process().children(recursive=True) if not _is_of_multiprocessing(child)]
    assert not left, f"still running: {[child.cmdline() for child in left]}"


def _is_of_multiprocessing(process: psutil.Process) -> bool:
    """Whether it is one of the two that Python itself keeps until the interpreter ends."""
    try:
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True
    return "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run; a test that kills it makes one of its own."""
    folder = temporary_folder("postgres")
    server = PostgresServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database of this test's own."""
    url = postgres_server.database()
    yield url
    postgres_server.drop(url)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server for the whole run; a test that kills it makes one of its own."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> Bucket:
    """An empty bucket of this test's own, with what it takes to reach it."""
    return s3_server.bucket()


@pytest.fixture
def s3(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """`s3_bucket`, with this process's environment set so that boto3 and podium reach it."""
    for name, value in s3_bucket.environment.items():
        monkeypatch.setenv(name, value)
    return s3_bucket


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A JetStream server of this test's own, which it may ``kill()`` and ``start()``."""
    folder = tmp_path / "nats"
    folder.mkdir()
    server = NatsServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """The folder of a Llama of 2 layers, 64 wide, random weights, a real tokenizer. Do not write there."""
    return models.kept("tiny-llama")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, which really answers. Do not write there."""
    return models.kept("smollm2")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database file to copy."""
    return registries.sqlite_template(tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="session")
def _migrated_postgres_url(postgres_server: PostgresServer) -> str:
    return registries.migrated_postgres(postgres_server)


@pytest.fixture(scope="session")
def _shared_bucket(s3_server: S3Server) -> Bucket:
    return s3_server.bucket()


@pytest.fixture
def sqlite_place(tmp_path: Path, sqlite_template: Path) -> Iterator[Place]:
    """Where a registry over SQLite and a folder lies."""
    place = registries.sqlite_place(tmp_path / "home", sqlite_template)
    yield place
    place.close()


@pytest.fixture
def server_place(
    tmp_path: Path,
    _migrated_postgres_url: str,
    _shared_bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """Where a registry over PostgreSQL and S3 lies. This process's environment reaches the S3 server."""
    registries.empty_postgres(_migrated_postgres_url)
    place = registries.server_place(tmp_path / "home", _migrated_postgres_url, _shared_bucket)
    for name, value in place.variables.items():
        monkeypatch.setenv(name, value)
    yield place
    place.close()


@pytest.fixture(scope="session")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """One podium server for the whole run; it serves one test's place after the other."""
    server = TestServer(tmp_path_factory.mktemp("http"))
    yield server
    server.close()


@pytest.fixture
def http_place(sqlite_place: Place, http_server: TestServer) -> Iterator[ServedPlace]:
    """`sqlite_place` behind a server: its registries are clients over HTTP."""
    place = http_server.serve(sqlite_place)
    yield place
    place.close()
    http_server.rest()


@pytest.fixture(params=["sqlite", pytest.param("servers", marks=pytest.mark.integration)])
def stored_place(request: pytest.FixtureRequest) -> Place:
    """Where a registry over a database lies, for tests that look or meddle behind its back."""
    found: Place = request.getfixturevalue("sqlite_place" if request.param == "sqlite" else "server_place")
    return found


_SERVICES = [pytest.param(name, marks=pytest.mark.integration) for name in ("servers", "http")]


@pytest.fixture(params=["sqlite", *_SERVICES])
def place(request: pytest.FixtureRequest) -> Place:
    """Where a registry lies: SQLite and a folder, PostgreSQL and S3, and behind a server."""
    names = {"sqlite": "sqlite_place", "servers": "server_place", "http": "http_place"}
    found: Place = request.getfixturevalue(names[request.param])
    return found


@pytest.fixture
def registry(place: Place) -> Registry:
    """An empty registry, of the user ``ada``; `place` says how others come to the same."""
    return place.open()


@pytest.fixture
def make(registry: Registry, tmp_path: Path) -> Maker:
    """What publishes small content into ``registry``."""
    return Maker(registry, tmp_path)
