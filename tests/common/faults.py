"""Real processes that do podium's work until they are killed, and are started again in milliseconds.

They are forks of a server that has the imports done (multiprocessing's ``forkserver``), so that hundreds of
deaths cost seconds. What an actor was told that it had done it appends to a file, whose bytes outlive it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from registry import crashpoints
from registry.errors import NotFound, Refused, Unavailable
from registry.services import Report
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from tests.common.content import write_dataset
from triggers.connection import Address, Connection
from triggers.jetstream import JetStreamBus
from triggers.relay import run_relay

_PR_SET_PDEATHSIG = 1
_PAUSE = 0.004  # seconds between two acts: the machine has other tests to run

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, "boto3", "psycopg", "registry.content.blobs.s3"])

Work = Callable[["Place"], None]


@dataclass(frozen=True)
class Place:
    """Where actors work: settings for all, and a file of acknowledgements for each."""

    settings: Settings
    environment: Mapping[str, str]
    folder: Path
    nats: str = ""

    def open(self, actor: str = "user:ada") -> StoredRegistry:
        """A registry, as soon as its database answers."""
        while True:
            with suppress(Unavailable):
                return StoredRegistry.open(self.settings, actor=actor)
            time.sleep(0.05)

    def acknowledgements(self) -> list[dict[str, Any]]:
        """All that all actors were told, those of one in their order. A last line may be cut by a kill."""
        told = []
        for path in sorted(self.folder.glob("*.told")):
            for line in path.read_text().split("\n")[:-1]:
                told.append(json.loads(line))
        return told

    def tell(self, **said: Any) -> None:
        """Keep what this process was told."""
        with self.told.open("ab", buffering=0) as file:
            file.write(json.dumps(said).encode() + b"\n")

    @property
    def told(self) -> Path:
        return self.folder / f"{os.getpid()}.told"


@dataclass
class Actor:
    """A process that is started again when it has died."""

    name: str
    work: Work
    place: Place
    points: tuple[str, ...] = ()  # where it may be made to die
    deaths: Counter[str] = field(default_factory=Counter)  # by the point; "" at any line
    _process: BaseProcess | None = None
    _point: str = ""

    def start(self, chance: random.Random | None = None) -> None:
        """Start it; with ``chance``, perhaps such that it kills itself at one of its points."""
        point = chance.choice(("", *self.points)) if chance is not None else ""
        self.start_to_die(point, chance.choice((1, 2, 8)) if chance is not None else 1)

    def start_to_die(self, point: str, count: int = 1) -> None:
        """Start it such that it kills itself when it comes to ``point`` for the ``count``-th time."""
        self._point = point
        spec = f"{point}:{count}" if point else ""
        self._process = _context.Process(
            target=_live, args=(self.work, self.place, spec), name=self.name, daemon=True
        )
        self._process.start()

    @property
    def sentinel(self) -> int:
        """Becomes ready when it has died."""
        assert self._process is not None
        return self._process.sentinel

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        assert self._process is not None
        self._process.join()
        process, self._process = self._process, None
        return process.exitcode or 0

    def reap(self) -> bool:
        """Whether it has died at its point."""
        if self._process is None or self._process.is_alive():
            return False
        self._bury(self._point)
        return True

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None and not self.reap():
            self._process.kill()
            self._bury("")

    def _bury(self, point: str) -> None:
        assert self._process is not None
        self._process.join()
        code, self._process = self._process.exitcode, None
        said = "\n".join(path.read_text() for path in self.place.folder.glob("*.error"))
        assert code == -signal.SIGKILL, f"{self.name} ended by itself with {code}\n{said}"
        self.deaths[point] += 1


def _live(work: Work, place: Place, spec: str) -> None:
    # The server of forks ends when the test run does; what it has forked would stay.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.environ.update(place.environment)
    crashpoints.kill_at(spec)
    try:
        work(place)
    except BaseException:
        (place.folder / f"{os.getpid()}.error").write_text(traceback.format_exc())
        raise


# What actors do


def promote(place: Place) -> None:
    """Move aliases without end."""
    registry = place.open()
    chance = random.Random(os.getpid())
    while True:
        name, alias = chance.choice(("ant", "bee")), chance.choice(("candidate", "production"))
        with suppress(Refused, NotFound, Unavailable):
            if chance.random() < 0.1:
                moved = registry.promotions.rollback(name, alias)
            else:
                moved = registry.promotions.promote(f"{name}:v{chance.randint(1, 3)}", alias)
            if moved.changed:
                place.tell(name=name, alias=alias, generation=moved.generation, event=moved.event)
        time.sleep(_PAUSE if chance.random() < 0.9 else 20 * _PAUSE)  # sometimes the relay catches up


def publish(place: Place) -> None:
    """Publish small contents without end."""
    registry = place.open()
    number = 0
    while True:
        number += 1
        files = {f"{part}.txt": f"{os.getpid()} {number} {part}".encode() for part in "abc"}
        path = write_dataset(place.folder / "contents" / f"{os.getpid()}-{number}", files)
        with suppress(Unavailable):
            version = registry.catalog.publish("cat", path, "dataset").version
            place.tell(version=version.number, digest=version.digest)
        time.sleep(10 * _PAUSE)


def publish_once(place: Place) -> None:
    """Publish ``content`` beside the acknowledgements, and end."""
    published = place.open().catalog.publish("dog", place.folder.parent / "content", "dataset")
    place.tell(ref=published.version.ref, sent=published.bytes_sent, total=published.bytes_total)


def relay(place: Place) -> None:
    """Relay whenever it leads."""

    def report(line: str, *, healthy: bool = True) -> None:
        """Nobody reads it."""

    asyncio.run(_relay(place, report))


async def _relay(place: Place, report: Report) -> None:
    bus = JetStreamBus(Connection(lambda: Address(place.nats)))
    while True:
        with suppress(Unavailable):
            await run_relay(place.open("system:up"), bus, asyncio.Event(), report)
        await asyncio.sleep(0.05)
