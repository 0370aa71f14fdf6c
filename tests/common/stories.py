"""A deployment of stories on a real vLLM, and the judgement of what its clients were answered."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from registry.content.safetensors import read_header
from registry.deployments import RolloutState
from registry.store.stored import StoredRegistry
from registry.values import Parent, Promotion, Role
from serving.deployment import VLLM, Deployment
from serving.desiring import Declared
from serving.reconcile import run_controllers
from tests.common.clients import Asked, ask
from tests.common.serving import write_float_lora

PROMPT = "Once upon a time"
NAME = "stories"
SERVED = "teller"
SETTINGS = VLLM(args=("--dtype", "float32", "--max-model-len", "256"))


def publish_stories(
    registry: StoredRegistry, home: Path, base: Path, adapters: int, *, of_any_base: bool = False
) -> list[str]:
    """A base and adapters on it that answer differently; the adapters' references."""
    version = registry.catalog.publish("tiny", base, "model").version
    registry.promotions.promote(version.ref, "production")
    refs = []
    for seed in range(adapters):
        folder = write_float_lora(home / f"adapter-{seed}", base, seed)
        parents = [] if of_any_base else [Parent(version.ref, Role.BASE)]
        refs.append(registry.catalog.publish("story", folder, "adapter", parents=parents).version.ref)
    return refs


def write_other_base(folder: Path, base: Path, layer: int = 0) -> Path:
    """The same model with one matrix turned upside down: it answers differently, and every adapter fits."""
    shutil.copytree(base, folder)
    file = folder / "model.safetensors"
    raw = bytearray(file.read_bytes())
    begins = 8 + struct.unpack("<Q", raw[:8])[0]
    tensor = read_header(file).tensors[f"model.layers.{layer}.mlp.down_proj.weight"]
    rows, row = tensor.shape[0], (tensor.end - tensor.begin) // tensor.shape[0]
    at = begins + tensor.begin
    body = bytes(raw[at : at + rows * row])
    raw[at : at + rows * row] = b"".join(body[i * row : (i + 1) * row] for i in reversed(range(rows)))
    file.write_bytes(raw)
    return folder


@asynccontextmanager
async def serving_stories(registry: StoredRegistry, *, replicas: int = 1) -> AsyncIterator[list[str]]:
    """`run_controllers` in this loop; gives the lines that it reports."""
    served = {SERVED: "story:production"}
    deployment = Deployment(NAME, base="tiny:production", serves=served, engine=SETTINGS, replicas=replicas)
    stop, lines = asyncio.Event(), list[str]()
    task = asyncio.create_task(
        run_controllers(
            registry,
            asyncio.Event(),
            stop,
            lambda name, line: lines.append(f"{time.monotonic():.3f} {line}"),
            source=lambda: {NAME: Declared(deployment, 1)},
        )
    )
    try:
        yield lines
    finally:
        stop.set()
        await task


async def live(registry: StoredRegistry, promotion: Promotion, timeout: float = 120) -> None:
    """Return when the promotion is live."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        seen = registry.events.position().newest
        found = registry.deployments.of_promotion(promotion.artifact, promotion.alias, promotion.generation)
        if found and found[-1].ended_at is not None:
            assert found[-1].state is RolloutState.LIVE, found[-1]
            return
        await asyncio.to_thread(registry.events.wait, seen, 0.5)
    raise AssertionError(f"{promotion.to_version} is not live after {timeout} s")


def address(registry: StoredRegistry) -> str:
    """Where clients ask."""
    found = registry.deployments.replicas(NAME)[0].address
    assert found is not None
    return found


@dataclass
class Story:
    """What was live when, and what each version answers."""

    known: dict[str, set[str]] = field(default_factory=dict)  # version -> the texts that are its own
    moves: list[tuple[float, str]] = field(default_factory=list)  # (when it was reported live, version)

    async def tell(self, http: httpx.AsyncClient, ref: str) -> Asked:
        """Note that a version was reported live, and what it answers from now on."""
        at = time.monotonic()
        asked = await ask(http, SERVED, PROMPT)
        assert (asked.status, asked.version) == (200, ref), asked
        self.moves.append((at, ref))
        self.known.setdefault(ref, set()).add(asked.text)
        return asked


def faults(asked: Sequence[Asked], story: Story) -> Mapping[str, list[Asked]]:
    """Every way in which a client was failed, with those that were; empty when nobody was."""
    found = {
        "not answered": [a for a in asked if a.status != 200],
        "cut short": [a for a in asked if a.status == 200 and (a.error or a.finish is None)],
        "aborted": [a for a in asked if a.finish == "abort"],
        "mixed": [a for a in asked if a.status == 200 and a.models != {a.version}],
        "answered by other weights": [
            a
            for a in asked
            if a.status == 200 and a.finish == "length" and a.text not in story.known.get(a.version or "", ())
        ],
        "late": [a for a in asked if a.status == 200 and a.version not in _possible(a, story)],
    }
    return {kind: those for kind, those in found.items() if those}


def _possible(asked: Asked, story: Story) -> set[str]:
    """What was live when it was sent, and all that came to be live while it was on its way.

    The next move after its end counts too: a route is moved a moment before that is reported.
    """
    before = [ref for at, ref in story.moves if at <= asked.sent][-1:]
    during = [ref for at, ref in story.moves if asked.sent < at <= asked.ended]
    after = [ref for at, ref in story.moves if at > asked.ended][:1]
    return {*before, *during, *after}


def describe(found: Mapping[str, list[Asked]]) -> str:
    """Faults in words, one example each."""
    return json.dumps({kind: [len(those), str(those[0])] for kind, those in found.items()}, indent=1)
