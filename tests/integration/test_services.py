"""The servers that other tests stand on do what those tests take for granted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
from botocore.exceptions import ClientError

from tests.common.postgres import PostgresServer
from tests.common.services import Bucket, NatsServer, S3Server, is_listening
from tests.common.waiting import wait_until

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[2]


def test_each_test_gets_an_empty_database(postgres_server: PostgresServer, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_a_bucket_takes_an_object_once_and_refuses_a_wrong_checksum(s3: Bucket) -> None:
    client = s3.client()
    client.put_object(Bucket=s3.name, Key="a", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3.name, Key="a", Body=b"2", IfNoneMatch="*")
    with pytest.raises(ClientError, match="BadDigest"):
        client.put_object(Bucket=s3.name, Key="b", Body=b"2", ChecksumSHA256="A" * 43 + "=")
    client.close()


def test_a_bucket_that_was_not_made_is_not_made_by_a_write(s3_server: S3Server) -> None:
    missing = s3_server.bucket_without_making("never-made")
    client = missing.client()
    with pytest.raises(ClientError, match="NoSuchBucket"):
        client.put_object(Bucket=missing.name, Key="a", Body=b"1")
    client.close()


async def _publish_and_count(server: NatsServer, stream: str, publish: int) -> int:
    import nats

    connection = await nats.connect(server.url)
    jetstream = connection.jetstream()
    await jetstream.add_stream(name=stream, subjects=[f"{stream}.>"])
    for number in range(publish):
        await jetstream.publish(f"{stream}.{number}", b"")
    info = await jetstream.stream_info(stream)
    await connection.close()
    return info.state.messages


def test_nats_keeps_what_it_acknowledged_when_it_is_killed(nats_server: NatsServer) -> None:
    import asyncio

    assert asyncio.run(_publish_and_count(nats_server, "kept", 20)) == 20
    nats_server.kill()
    assert not is_listening(nats_server.port)
    nats_server.start()
    assert asyncio.run(_publish_and_count(nats_server, "kept", 0)) == 20


_START_AND_WAIT = """
import sys, pathlib
from tests.common.services import NatsServer
server = NatsServer(pathlib.Path(sys.argv[1]))
server.start()
print(server.process.pid, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_when_its_test_run_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _START_AND_WAIT, str(tmp_path)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        server = psutil.Process(int(run.stdout.readline()))
        assert server.name() == "nats-server"
        os.kill(run.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_running(), 10, "the server ends with the run that started it")
