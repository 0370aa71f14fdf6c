"""What lies between a client and its answer, and how long a change of it takes: on the fake engine.

The fake engine answers at once, so that what is measured is podium's own. Aims are figures of the design, not
those of a peer: the middleware may add 1 ms, the proxy 2 ms.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from registry import Registry, Settings, connect
from registry.values import Parent, Role
from serving import VLLM, Deployment, run_controllers
from serving.child import free_port
from serving.desiring import Declared
from serving.haproxy import find_haproxy
from tests.benchmarks.measuring import Aim, Row, compare, interleaved
from tests.common.serving import write_base, write_lora
from tests.common.waiting import wait_until

_ROUNDS, _WARMUPS = 1000, 50
_FLIPS = 15
_MIDDLEWARE_MS, _PROXY_MS, _FLIP_MS = 1.0, 2.0, 100.0
_BODY = json.dumps({"model": "tiny:v1", "prompt": "x" * 500, "max_tokens": 4})
_START_SECONDS = 60
_FAKE = VLLM(module="serving.fake_vllm")


def added_by_middleware_and_proxy() -> Iterator[Row]:
    """Milliseconds of one request to a bare engine, to one behind the middleware, and through the proxy."""
    with TemporaryDirectory(prefix="podium-bench-") as scratch:
        folder = Path(scratch)
        with _bare(folder) as bare, _deployed(folder) as (registry, _):
            status = registry.deployments.replicas("doors")[0]
            address, endpoint = status.address or "", status.endpoint or ""
            work = {"bare": _asking(bare), "middleware": _asking(endpoint)}
            if address != endpoint:
                work["proxy"] = _asking(address)
            seconds = interleaved(work, rounds=_ROUNDS, warmups=_WARMUPS)
    for share, name in ((50, "p50"), (99, "p99")):
        taken = {key: _percentile(values, share) for key, values in seconds.items()}
        added = taken["middleware"] - taken["bare"]
        yield compare(
            f"middleware adds, {name} (beside its aim)", added, _MIDDLEWARE_MS, "ms", Aim.AT_MOST, 1.0
        )
        if "proxy" in taken:
            added = taken["proxy"] - taken["middleware"]
            yield compare(f"proxy adds, {name} (beside its aim)", added, _PROXY_MS, "ms", Aim.AT_MOST, 1.0)


def flip_and_rollback() -> Iterator[Row]:
    """From `rollback` to live on two replicas, where the version is still loaded: one flip."""
    if find_haproxy() is None:
        return
    with TemporaryDirectory(prefix="podium-bench-") as scratch:
        with _deployed(Path(scratch), replicas=2) as (registry, seen):
            _until_live(registry, registry.promotions.promote("story:v2", "production").generation)
            _until_live(registry, registry.promotions.promote("story:v1", "production").generation)
            taken = [_back(registry, number) for number in range(_FLIPS)]
        steps = [line for line in seen if line.split()[0] in ("load", "stage")]
    assert len(steps) < 2 * _FLIPS, "a rollback loads nothing"
    median = statistics.median(taken) * 1000
    yield compare("rollback to live, 2 replicas (beside its aim)", median, _FLIP_MS, "ms", Aim.AT_MOST, 1.0)


def _back(registry: Registry, number: int) -> float:
    begin = time.perf_counter()
    moved = registry.promotions.promote(f"story:v{2 - number % 2}", "production")
    _until_live(registry, moved.generation)
    return time.perf_counter() - begin


def _percentile(seconds: Sequence[float], share: int) -> float:
    return statistics.quantiles(seconds, n=100)[share - 1] * 1000


def _asking(endpoint: str) -> Callable[[], None]:
    """One request on a kept connection."""
    host, _, port = endpoint.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)

    def ask() -> None:
        connection.request("POST", "/v1/completions", _BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == 200

    return ask


@contextmanager
def _bare(folder: Path) -> Iterator[str]:
    """The fake engine without the middleware."""
    port = free_port()
    base = write_base(folder / "bare")
    command = [
        *(sys.executable, "-P", "-m", "serving.fake_vllm", "--model", str(base)),
        *("--served-model-name", "tiny:v1", "--port", str(port)),
    ]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path.cwd())})
    try:
        wait_until(lambda: _listens(port), _START_SECONDS, "the bare engine answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def _deployed(folder: Path, replicas: int = 1) -> Iterator[tuple[Registry, list[str]]]:
    """A deployment of the fake engine with a base and two adapters, the first of them live."""
    registry = connect(Settings(home=folder / "home", actor="bench"))
    base = registry.catalog.publish("tiny", write_base(folder / "base"), "model").version
    for seed in (1, 2):
        parents = [Parent(base.ref, Role.BASE)]
        adapter = write_lora(folder / f"adapter-{seed}", seed)
        registry.catalog.publish("story", adapter, "adapter", parents=parents)
    deployment = Deployment(
        "doors", base="tiny:v1", serves={"teller": "story:production"}, engine=_FAKE, replicas=replicas
    )
    stop, lines = threading.Event(), list[str]()
    thread = threading.Thread(target=_control, args=(registry, deployment, stop, lines))
    thread.start()
    try:
        _until_live(registry, registry.promotions.promote("story:v1", "production").generation)
        yield registry, lines
    finally:
        stop.set()
        thread.join()
        registry.close()


def _control(registry: Registry, deployment: Deployment, stop: threading.Event, lines: list[str]) -> None:
    async def run() -> None:
        ended = asyncio.Event()
        declared = {deployment.name: Declared(deployment, 1)}
        controllers = asyncio.create_task(
            run_controllers(
                registry, asyncio.Event(), ended, lambda _, line: lines.append(line), source=lambda: declared
            )
        )
        await asyncio.to_thread(stop.wait)
        ended.set()
        await controllers

    asyncio.run(run())


def _until_live(registry: Registry, generation: int) -> None:
    """Return when the promotion of ``story:production`` is live."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        seen = registry.events.position().newest
        found = registry.deployments.of_promotion("story", "production", generation)
        if found and found[0].ended_at is not None:
            assert found[0].state == "live", found[0].reason
            return
        registry.events.wait(seen, 0.5)
    raise AssertionError("it did not become live")
