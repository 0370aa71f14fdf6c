"""Real servers for tests: NATS and S3 here, PostgreSQL beside; each a child on ports that the system chose.

Each server is a `Service`: ``start``, ``stop`` (in its own good order), ``kill`` (SIGKILL, as a lost machine
would), ``start`` again on the same data and ports. The kernel ends it when the test run dies (`guarded`).
Fixtures for them are in ``tests/conftest.py``; a test that kills a server starts one of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.common import guarded
from tests.common.waiting import wait_until

#: Tests talk to this machine only.
HOST = "127.0.0.1"
_BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports that nothing on this machine's loopback listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def is_listening(port: int) -> bool:
    """Whether something accepts connections on the port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


class Service:
    """A server in a child process, with its own folder of data and of log."""

    #: What the kernel sends when the test run dies, and `stop` to end the server in order.
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL
    #: The system user to run as; empty for the user of the test run.
    user = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.environment: dict[str, str] = {}  # beside that of the test run
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The program and its arguments."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it on its data and ports, and return when it answers."""
        self.spawn()
        wait_until(self._ready_or_dead, 60, lambda: f"{self!r} is ready; its log ends:\n{self.log_tail()}")
        if not self.running:
            raise RuntimeError(f"{self!r} ended at its start; its log ends:\n{self.log_tail()}")

    def spawn(self) -> None:
        """Start it, and do not wait until it answers."""
        assert not self.running
        guard = [sys.executable, "-I", "-S", guarded.__file__, str(os.getpid()), str(int(self.death_signal))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*guard, self.user, *self.command()],
                cwd=self.folder,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the test run, which then stops its servers in order
            )

    def _ready_or_dead(self) -> bool:
        return not self.running or self.is_ready()

    def stop(self) -> None:
        """End it in order; kill it when it takes longer than 20 s."""
        if self.process is None:
            return
        if self.running:
            self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def pause(self) -> None:
        """Stop it from running, without ending it: connections stay open and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again after `pause`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        """The end of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder})"


class NatsServer(Service):
    """A ``nats-server`` with JetStream that flushes each write before it acknowledges it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.monitor_port = free_ports(2)
        self._password = secrets.token_hex(8)

    @property
    def url(self) -> str:
        """Address with credentials, as ``PODIUM_NATS`` takes it."""
        return f"nats://podium:{self._password}@{HOST}:{self.port}"

    def command(self) -> list[str]:
        config = {
            "listen": f"{HOST}:{self.port}",
            "http": f"{HOST}:{self.monitor_port}",
            "server_name": "podium-test",
            "authorization": {"user": "podium", "password": self._password},
            "jetstream": {"store_dir": str(self.folder / "jetstream"), "sync_interval": "always"},
        }
        path = self.folder / "nats.conf"
        path.write_text(json.dumps(config))  # its configuration language takes JSON as it is
        return [str(_BIN / "nats-server"), "-c", str(path)]

    def is_ready(self) -> bool:
        if not is_listening(self.monitor_port):
            return False
        try:
            with urlopen(f"http://{HOST}:{self.monitor_port}/healthz") as answer:
                return bool(answer.status == 200)
        except HTTPError as error:  # 503: JetStream is not up yet
            error.close()
            return False


@dataclass(frozen=True)
class Bucket:
    """A bucket of a test's own, and what it takes to reach it."""

    endpoint: str
    name: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that boto3 and so podium read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """A plain boto3 client, for a test to look behind podium's back."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}),
        )


class S3Server(Service):
    """SeaweedFS with one identity that may do everything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        names = ("s3.port", "master.port", "volume.port", "filer.port")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._grpc_ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._secret_key = secrets.token_hex(16)

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._ports['s3.port']}"

    def bucket(self, name: str = "") -> Bucket:
        """A new, empty bucket."""
        made = self.bucket_without_making(name or f"test-{secrets.token_hex(6)}")
        client = made.client()
        client.create_bucket(Bucket=made.name)
        client.close()
        return made

    def bucket_without_making(self, name: str) -> Bucket:
        """A bucket that may not exist, with the right credentials."""
        return Bucket(self.endpoint, name, "podium", self._secret_key)

    def command(self) -> list[str]:
        keys = [{"accessKey": "podium", "secretKey": self._secret_key}]
        identity = {"name": "podium", "credentials": keys, "actions": ["Admin"]}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self.folder / "data").mkdir(exist_ok=True)
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        ports += [f"-{name}.grpc={port}" for name, port in self._grpc_ports.items()]
        places = [f"-dir={self.folder / 'data'}", f"-s3.config={self.folder / 's3.json'}"]
        addresses = [f"-ip={HOST}", f"-ip.bind={HOST}", *ports, "-s3.port.iceberg=0", "-s3.port.lance=0"]
        switches = ["-webdav=false", "-admin.ui=false", "-s3.autoCreateBucket=false"]
        return [str(_BIN / "weed"), "mini", *places, *addresses, *switches, "-master.telemetry=false"]

    def is_ready(self) -> bool:
        if not is_listening(self._ports["s3.port"]):
            return False
        client = self.bucket_without_making("unused").client()
        try:
            client.list_buckets()
        except Exception:  # whatever boto3 says of a server that is half up, it is not ready
            return False
        finally:
            client.close()
        return True


def temporary_folder(name: str) -> Path:
    """A folder below the system's temporary one that another user may enter (pytest's own is closed)."""
    return Path(tempfile.mkdtemp(prefix=f"podium-{name}-"))
