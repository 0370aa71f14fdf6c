"""One supervised child process with a record on disk, so that a restarted controller can adopt or end it.

The record is written before the process is started, and the process carries the record's token in its
environment. A controller that is killed between the two finds the process by that token. What vLLM itself
starts outlives a killed parent and keeps its memory: it is found by its session and its log.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from serving.errors import StaleController
from serving.middleware import TOKEN_VARIABLE

__all__ = ["Child", "Record", "free_port"]

_SHARED_MEMORY = Path("/dev/shm")  # where Linux keeps what multiprocessing.shared_memory makes
_CLOCK_SLACK_SECONDS = 2.0
_LOG_TAIL = 64 * 1024  # bytes of the log that are searched for the reason of a failure
_LONGEST_REASON = 300
# "ValueError: ..." or "Value error, ..." at the end of a traceback, with or without vLLM's own prefix.
_REASON = re.compile(
    r"^(?:\(.*?\) )?(?:ERROR .*?\] )?\s*((?:[\w.]*(?:Error|Exception)|Value error)\b[:,].+)$", re.M
)
_NOT_THE_CAUSE = ("Engine core initialization failed", "WorkerProc initialization failed")


@dataclass(frozen=True, slots=True)
class Record:
    """What must be known to speak to a process, or to end it, after a restart of the controller."""

    token: str
    port: int
    fingerprint: str  # of the base's content and the engine's settings
    base_name: str
    requested_at: float  # seconds since the epoch
    pid: int | None = None  # of the main process and its session; None: it was about to be started
    created: float | None = None  # psutil's creation time: tells a reused pid from ours


def reason_in(log: str) -> str:
    """The last error that a log names, less those that only say that there was one before."""
    named = [found for found in _REASON.findall(log) if not any(words in found for words in _NOT_THE_CAUSE)]
    lines = log.strip().splitlines()
    reason = named[-1] if named else lines[-1] if lines else "it ended without a word"
    return reason.strip()[:_LONGEST_REASON]


def free_port() -> int:
    """A port on the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


#: Children of this process, which only it can reap, whichever `Child` object speaks for them now.
_spawned: dict[int, subprocess.Popen[bytes]] = {}


def _reap() -> None:
    """Let go of children that were succeeded by another process and have ended since."""
    for pid in [pid for pid, process in _spawned.items() if process.poll() is not None]:
        del _spawned[pid]


class Child:
    """The process of one replica, in a folder of its own: record, log, and the code it imports."""

    def __init__(self, folder: Path, log: str = "engine.log") -> None:
        self.folder = folder
        self.log = folder / log
        self.record = self._read()
        self._searched_for = ""  # the token of a record for whose process was searched

    def prepare(
        self, port: int | None, fingerprint: str, base_name: str, *, avoid: int | None = None
    ) -> Record:
        """End what is left of an earlier process and record the next one, with a token of its own.

        Without ``port`` it is the one it had before, if that is free and not ``avoid``.
        """
        self._check_authority()
        self.kill_all()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        last = self.record.port if self.record else None
        chosen = port or (last if last and last != avoid and port_is_free(last) else free_port())
        record = Record(secrets.token_hex(24), chosen, fingerprint, base_name, time.time())
        self._write(record)
        return record

    def succeed(self, fingerprint: str) -> None:
        """Record that a next process takes the place of the one that runs, and goes by the same token."""
        assert self.record is not None, "there is nothing to succeed"
        self._write(replace(self.record, fingerprint=fingerprint, requested_at=time.time()))

    def note_fingerprint(self, fingerprint: str) -> None:
        """Record of which configuration the prepared process is."""
        assert self.record is not None, "prepare() comes first"
        self._write(replace(self.record, fingerprint=fingerprint))

    def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the prepared process, in a session of its own so that Ctrl-C does not reach it."""
        assert self.record is not None, "prepare() comes first"
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                list(command),
                cwd="/",
                env={**environment, TOKEN_VARIABLE: self.record.token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _spawned[process.pid] = process
        created = psutil.Process(process.pid).create_time()
        self._write(replace(self.record, pid=process.pid, created=created))

    def is_alive(self) -> bool:
        """Whether the recorded process runs (one that was found by its token counts)."""
        if self.record is None:
            return False
        if self.record.pid is None and self._searched_for != self.record.token:
            self._adopt_unrecorded()
        if self.record.pid is None:
            return False
        _reap()
        return _is_same(self.record.pid, self.record.created)

    def terminate(self) -> None:
        """Ask the main process, and only it, to end: it tells its own children."""
        if self.is_alive() and self.record and self.record.pid:
            os.kill(self.record.pid, signal.SIGTERM)

    def kill_all(self) -> None:
        """End every process that belongs to the record, at once, and wait until they are gone."""
        if self.record is None:
            return
        found = _belonging(self.record, self.log)
        segments = {path for process in found for path in _shared_memory(process)}
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if self.record.pid in _spawned:
            _spawned.pop(self.record.pid).wait()
        psutil.wait_procs(found, timeout=10)
        for path in segments:
            path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Record that nothing runs; the port stays reserved for the next start."""
        if self.record is not None and not self._is_superseded():
            self._write(replace(self.record, pid=None, created=None, token=secrets.token_hex(24)))

    def processes(self) -> list[psutil.Process]:
        """The process and all that it started."""
        return _belonging(self.record, self.log) if self.record is not None else []

    def last_words(self) -> str:
        """Why the process ended, as far as its log says, and where the log is."""
        try:
            with self.log.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _LOG_TAIL))
                text = log.read().decode(errors="replace")
        except OSError:
            return "it left no log"
        return f"{reason_in(text)} (log: {self.log})"

    def _adopt_unrecorded(self) -> None:
        assert self.record is not None
        self._searched_for = self.record.token  # once: only this object starts what goes by it from now on
        found = _belonging(self.record, self.log)
        if found:
            first = min(found, key=lambda process: process.create_time())
            self._write(replace(self.record, pid=first.pid, created=first.create_time()))

    def _check_authority(self) -> None:
        if self._is_superseded():
            raise StaleController(f"Another controller has started what runs in {self.folder}.", remedy="")

    def refresh(self) -> bool:
        """Take over what another controller has recorded since; whether that was another process."""
        if not self._is_superseded():
            return False
        self.record = self._read()
        return True

    def _is_superseded(self) -> bool:
        """Whether a newer controller has started a process here since: its record stands."""
        there = self._read()
        return there is not None and (self.record is None or there.token != self.record.token)

    def _read(self) -> Record | None:
        try:
            return Record(**json.loads((self.folder / "replica.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, record: Record) -> None:
        self._check_authority()
        aside = self.folder / "replica.json.new"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.folder / "replica.json")
        self.record = record


def _is_same(pid: int, created: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        # Start times are counted from the boot time, which moves a little when the clock is set.
        same = created is not None and abs(process.create_time() - created) <= _CLOCK_SLACK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _belonging(record: Record, log: Path) -> list[psutil.Process]:
    """The recorded process and all that it started, also when it is dead itself."""
    return [process for process in psutil.process_iter() if _belongs(process, record, log)]


def _shared_memory(process: psutil.Process) -> list[Path]:
    """Files of the shared memory that a process has made or joined: nobody else removes them after SIGKILL.

    A vLLM leaves some 400 MB of it.
    """
    try:
        mapped = [Path(each.path) for each in process.memory_maps()]
    except (psutil.Error, OSError, AttributeError):
        return []  # gone, or a system that does not tell
    return [path for path in mapped if path.parent == _SHARED_MEMORY and path.name.startswith("psm_")]


def _belongs(process: psutil.Process, record: Record, log: Path) -> bool:
    """Known by the token in its environment, or, because vLLM's engine writes its title over that, by the
    session that was begun for it and the log that it writes to."""
    try:
        if process.environ().get(TOKEN_VARIABLE) == record.token:
            return True
        if record.pid is not None and os.getsid(process.pid) != record.pid:
            return False
        return any(Path(file.path) == log and file.mode != "r" for file in process.open_files())
    except (psutil.Error, OSError):
        return False  # gone, or another user's
