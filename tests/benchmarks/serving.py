"""A rollout beside the same steps by hand, on a real vLLM each."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from registry import Registry, Settings, connect
from registry.values import Parent, Role
from serving import VLLM, Deployment, run_controllers
from serving.child import free_port
from serving.desiring import Declared
from serving.probing import PROMPTS
from tests.benchmarks.measuring import Aim, Row, compare, interleaved, median_ms
from tests.common import models
from tests.common.serving import write_float_lora
from tests.common.waiting import wait_until

_ROUNDS, _WARMUPS = 10, 3
_ENGINE_ARGS = ("--max-model-len", "256")
_START_SECONDS = 600
_QUESTION = {"prompt": "Once upon a time", "max_tokens": 1, "temperature": 0}
_PROBE = {"prompt": list(PROMPTS), "max_tokens": 1, "temperature": 0, "logprobs": 5}


def promote_to_first_answer() -> Iterator[Row]:
    """From `promote` to the first answer of a new adapter of SmolLM2, beside a script that does the same."""
    base = models.kept("smollm2")
    with TemporaryDirectory(prefix="podium-bench-") as scratch:
        folder = Path(scratch)
        with _plain_vllm(folder, base) as by_hand, _podium(folder, base) as ours:
            work = {"ours": ours, "peer": by_hand}
            seconds = interleaved(work, rounds=_ROUNDS, warmups=_WARMUPS)
        yield compare(
            "promote to first new answer",
            median_ms(seconds["ours"]),
            median_ms(seconds["peer"]),
            "ms",
            Aim.AT_MOST,
            1.3,
        )


class _Podium:
    """Each call publishes nothing: it promotes a version that was published before, and asks."""

    def __init__(self, registry: Registry, http: httpx.Client) -> None:
        self._registry = registry
        self._http = http
        self._versions = count(2)

    def __call__(self) -> None:
        version = next(self._versions)
        promoted = self._registry.promotions.promote(f"story:v{version}", "production")
        wait_until_live(self._registry, promoted.generation)
        answer = self._http.post("/v1/completions", json={**_QUESTION, "model": "teller"})
        assert answer.headers["x-podium-version"] == f"story:v{version}"


class _ByHand:
    """Load under a new name, probe it, and ask it: what a careful script does."""

    def __init__(self, folder: Path, http: httpx.Client) -> None:
        self._folder = folder
        self._http = http
        self._versions = count(2)
        self._baseline = self._probe("base")

    def __call__(self) -> None:
        name = f"hand-{next(self._versions)}"
        path = str(self._folder / name)
        self._http.post(
            "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": path}
        ).raise_for_status()
        assert self._probe(name) != self._baseline
        answer = self._http.post("/v1/completions", json={**_QUESTION, "model": name})
        assert answer.json()["model"] == name

    def _probe(self, name: str) -> list[object]:
        answer = self._http.post("/v1/completions", json={**_PROBE, "model": name})
        return [choice["logprobs"]["top_logprobs"] for choice in answer.json()["choices"]]


def wait_until_live(registry: Registry, generation: int, timeout: float = _START_SECONDS) -> None:
    """Return when the promotion of ``story:production`` is live."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        seen = registry.events.position().newest
        found = registry.deployments.of_promotion("story", "production", generation)
        if found and found[0].ended_at is not None:
            assert found[0].state == "live", found[0].reason
            return
        registry.events.wait(seen, 0.5)
    raise AssertionError("it did not become live")


@contextmanager
def _podium(folder: Path, model: Path) -> Iterator[_Podium]:
    registry = connect(Settings(home=folder / "home", actor="bench"))
    base = registry.catalog.publish("smollm2", model, "model").version
    for seed in range(_ROUNDS + _WARMUPS + 2):
        adapter = write_float_lora(folder / f"ours-{seed}", model, seed)
        registry.catalog.publish("story", adapter, "adapter", parents=[Parent(base.ref, Role.BASE)])
    deployment = Deployment(
        "bench",
        base="smollm2:v1",
        serves={"teller": "story:production"},
        engine=VLLM(args=_ENGINE_ARGS),
    )
    stop = threading.Event()
    thread = threading.Thread(target=_control, args=(registry, deployment, stop))
    thread.start()
    try:
        wait_until_live(registry, registry.promotions.promote("story:v1", "production").generation)
        endpoint = registry.deployments.replicas("bench")[0].endpoint or ""
        with httpx.Client(base_url=endpoint, timeout=120, trust_env=False) as http:
            yield _Podium(registry, http)
    finally:
        stop.set()
        thread.join()
        registry.close()


def _control(registry: Registry, deployment: Deployment, stop: threading.Event) -> None:
    """The controllers as `podium up` runs them: in an event loop of their own."""

    async def run() -> None:
        ended = asyncio.Event()
        declared = {deployment.name: Declared(deployment, 1)}
        controllers = asyncio.create_task(
            run_controllers(registry, asyncio.Event(), ended, lambda *_: None, source=lambda: declared)
        )
        await asyncio.to_thread(stop.wait)
        ended.set()
        await controllers

    asyncio.run(run())


@contextmanager
def _plain_vllm(folder: Path, model: Path) -> Iterator[_ByHand]:
    """A vLLM as its documentation says to start it for loading adapters at run time."""
    for seed in range(_ROUNDS + _WARMUPS + 2):
        write_float_lora(folder / f"hand-{seed + 2}", model, 1000 + seed)
    port = free_port()
    command = [
        *(sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", "base", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"),
        *("--enable-lora", "--max-lora-rank", "16", "--max-loras", "2", "--max-cpu-loras", "16"),
        *("--disable-uvicorn-access-log", *_ENGINE_ARGS),
    ]
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    }
    with (folder / "plain.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd="/", stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as http:
            wait_until(lambda: _is_up(http), _START_SECONDS, "vLLM answers")
            yield _ByHand(folder, http)
    finally:
        process.terminate()
        process.wait(60)


def _is_up(http: httpx.Client) -> bool:
    try:
        return http.get("/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
