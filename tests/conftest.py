"""Fixtures that the tiers share. Servers are real, on free ports, and end with the test run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.common import models
from tests.common.postgres import PostgresServer
from tests.common.services import Bucket, NatsServer, S3Server, temporary_folder

_TESTS = Path(__file__).parent
_TIERS = ("unit", "simulation", "integration", "acceptance")


def _tier(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the tier whose folder they are in, cheap tiers first, shuffled inside each."""
    items.sort(key=lambda item: _TIERS.index(_tier(item)))
    has_gpu = shutil.which("nvidia-smi") is not None
    for item in items:
        if _tier(item) in ("integration", "acceptance"):
            item.add_marker(_tier(item))
        if "gpu" in item.keywords and not has_gpu:
            item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA GPU"))


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
