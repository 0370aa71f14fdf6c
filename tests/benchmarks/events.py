"""From a promotion to the handler that it starts, in another process, beside bare JetStream.

Ours: this process promotes; `podium up` relays and runs the server; the handler runs in the process of its
deployed app. The peer: this process publishes to a stream of the same server, with the same sync, and
another process pulls. Both are timed from the call to the first line on the other side; the monotonic clock
is one for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import nats
from nats.js.api import RetentionPolicy, StorageType, StreamConfig

from registry import Registry, Settings, connect
from registry.apps.deploying import prepare
from tests.benchmarks.measuring import Aim, Row, compare, median_ms, percentile_ms
from tests.common.content import write_adapter
from tests.common.waiting import wait_until
from triggers.connection import Role, find_address

_ROUNDS, _WARMUPS = 300, 20
_MOST_P50_MS, _MOST_P99_MS = 5.0, 15.0

_APP = """
import os, socket, time
from registry import App
from triggers import OnPromotion, subscribe

app = App("bench")
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

@subscribe(OnPromotion("router"))
def note(event, context):
    out.sendto(str(time.monotonic_ns()).encode(), os.environ["BENCH_SOCKET"])
"""

_PULLER = """
import asyncio, socket, sys, time
import nats

async def main(url, user, password, path):
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client = await nats.connect(url, user=user, password=password)
    puller = await client.jetstream().pull_subscribe("bench", "puller", stream="bench")
    while True:
        try:
            (message,) = await puller.fetch(1, timeout=5)
        except nats.errors.TimeoutError:
            continue
        out.sendto(str(time.monotonic_ns()).encode(), path)
        await message.ack()

asyncio.run(main(*sys.argv[1:]))
"""

Timed = Callable[[], float]


def promote_to_handler_start() -> Iterator[Row]:
    """One promotion at a time; the next when the handler of the last has started."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="podium-bench-")))
        registry = stack.enter_context(_registry(folder))
        promote = stack.enter_context(_promoting(folder, registry))
        publish = stack.enter_context(_publishing(folder, registry.settings))
        ours, peer = _in_turns(promote, publish)
    name = "promote to handler start"
    yield compare(name, median_ms(ours), median_ms(peer), "ms", Aim.AT_MOST, 4)
    yield _bound(f"{name}, p50", median_ms(ours), _MOST_P50_MS, median_ms(peer))
    yield _bound(f"{name}, p99", percentile_ms(ours, 99), _MOST_P99_MS, percentile_ms(peer, 99))


def _bound(name: str, ours: float, most: float, peer: float) -> Row:
    return Row(name, ours, peer, "ms", round(ours / peer, 3), f"at most {most:g} ms", ours <= most)


def _in_turns(promote: Timed, publish: Timed) -> tuple[list[float], list[float]]:
    """Seconds of each; both are timed by what they start, not by their own return."""
    for _ in range(_WARMUPS):
        promote()
        publish()
    ours, peer = [], []
    gc.disable()
    try:
        for _ in range(_ROUNDS):
            ours.append(promote())
            peer.append(publish())
    finally:
        gc.enable()
    return ours, peer


@contextmanager
def _registry(folder: Path) -> Iterator[Registry]:
    """A registry with two versions of ``router``, and the handler deployed."""
    registry = connect(Settings(home=folder / "home", actor="bench"))
    for seed in (1, 2):
        registry.catalog.publish("router", write_adapter(folder / f"v{seed}", seed=seed), "adapter")
    (folder / "bench.py").write_text(_APP)
    app, objects = prepare(registry, folder / "bench.py")
    registry.apps.apply(app, objects, plan=registry.apps.plan(app, objects))
    try:
        yield registry
    finally:
        registry.close()


@contextmanager
def _promoting(folder: Path, registry: Registry) -> Iterator[Timed]:
    """`podium up` runs; a call promotes and gives the seconds until the handler has started."""
    podium = str(Path(sys.executable).with_name("podium"))
    up = [podium, "up", "--without", "worker", "--without", "serving"]
    with _listening(folder / "ours") as started:
        environment = {
            **os.environ,
            "PODIUM_HOME": str(registry.settings.home),
            "BENCH_SOCKET": str(folder / "ours"),
        }
        versions = cycle((1, 2))

        def promote() -> float:
            begin = time.monotonic_ns()
            registry.promotions.promote(f"router:v{next(versions)}", "production")
            return (started() - begin) / 1e9

        with _process(up, environment, folder):
            wait_until(lambda: _served(registry), 60, "the handler is served")
            yield promote


def _served(registry: Registry) -> bool:
    log = registry.settings.home / "logs" / "app-bench.log"
    return log.exists() and "1 served from" in log.read_text()


@contextmanager
def _publishing(folder: Path, settings: Settings) -> Iterator[Timed]:
    """A call publishes and gives the seconds until the puller has the message."""
    address = find_address(settings, Role.RELAY)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def make() -> nats.NATS:
        client = await nats.connect(address.url, user=address.user, password=address.password)
        config = StreamConfig(
            name="bench", subjects=["bench"], retention=RetentionPolicy.LIMITS, storage=StorageType.FILE
        )
        await client.jetstream().add_stream(config)
        return client

    async def send() -> int:
        begin = time.monotonic_ns()
        await client.jetstream().publish("bench", b"x" * 300)
        return begin

    client = asyncio.run_coroutine_threadsafe(make(), loop).result(20)
    arguments = [address.url, str(address.user), str(address.password), str(folder / "peer")]
    try:
        with (
            _listening(folder / "peer") as pulled,
            _process([sys.executable, "-P", "-c", _PULLER, *arguments], dict(os.environ), folder),
        ):

            def publish() -> float:
                begin = asyncio.run_coroutine_threadsafe(send(), loop).result(20)
                return (pulled() - begin) / 1e9

            yield publish
    finally:
        asyncio.run_coroutine_threadsafe(client.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


@contextmanager
def _listening(path: Path) -> Iterator[Callable[[], int]]:
    """A call waits for the next time (nanoseconds) that somebody sends to ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(30)
        yield lambda: int(listener.recv(64))


@contextmanager
def _process(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / "processes.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(40)
