"""A small world for tests of serving: a real registry, adapters without torch, engines in this process."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.content.safetensors import read_header
from registry.deployments import Rollout
from registry.protocol import Registry
from registry.values import Origin, Parent, Role, Version
from serving.controller import Controller
from serving.deployment import VLLM, Deployment
from serving.desiring import Declared
from serving.fake_engine import FakeEngine
from serving.fake_front import FakeFront
from serving.leadership import ACTOR
from serving.room import Room
from serving.staging import StoreStaging
from serving.state import Plan
from tests.common.content import Spec, safetensors_bytes, with_header

WIDTH = 16
_CHAT_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def write_base(folder: Path, seed: int = 1, width: int = WIDTH) -> Path:
    """A base model of two layers with a tokenizer, as small as it can be."""
    folder.mkdir(parents=True)
    tensors: dict[str, Spec] = {"model.embed_tokens.weight": ("BF16", (32, width), seed)}
    for layer in range(2):
        for module in ("self_attn.q_proj", "mlp.up_proj"):
            tensors[f"model.layers.{layer}.{module}.weight"] = ("BF16", (width, width), seed + layer)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "tie_word_embeddings": True}))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}, "padding": None}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _CHAT_TEMPLATE}))
    return folder


def write_lora(
    folder: Path,
    seed: int = 1,
    *,
    rank: int = 4,
    width: int = WIDTH,
    prefix: str = "base_model.model.model",
    config: Mapping[str, Any] | None = None,
    fake: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """An adapter for `write_base`; ``fake`` is how `FakeVLLM` shall misbehave with it."""
    folder.mkdir(parents=True)
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        **(config or {}),
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    tensors: dict[str, Spec] = {}
    for layer in range(2):
        module = f"{prefix}.layers.{layer}.self_attn.q_proj"
        tensors[f"{module}.lora_A.weight"] = ("F32", (rank, width), 100 * seed + layer)
        tensors[f"{module}.lora_B.weight"] = ("F32", (width, rank), 100 * seed + layer + 50)
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
    for name, text in {"fake.json": json.dumps(fake) if fake else "", **(files or {})}.items():
        if text:
            (folder / name).write_text(text)
    return folder


def write_float_lora(folder: Path, base: Path, seed: int, *, rank: int = 8, scale: float = 1.0) -> Path:
    """An adapter with real numbers for any Llama: strong enough that its greedy answers are its own."""
    folder.mkdir(parents=True)
    modules = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": [module.rpartition(".")[2] for module in modules],
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    draw = random.Random(seed)
    header: dict[str, Any] = {}
    body = bytearray()
    for name, tensor in read_header(base / "model.safetensors").tensors.items():
        if name.removesuffix(".weight").endswith(modules):
            out, into = tensor.shape
            for part, shape in (("A", (rank, into)), ("B", (out, rank))):
                numbers = array("f", (draw.gauss(0, scale / rank) for _ in range(shape[0] * shape[1])))
                entry = {
                    "dtype": "F32",
                    "shape": list(shape),
                    "data_offsets": [len(body), len(body) + 4 * len(numbers)],
                }
                header[f"base_model.model.{name.removesuffix('.weight')}.lora_{part}.weight"] = entry
                body += numbers.tobytes()
    (folder / "adapter_model.safetensors").write_bytes(with_header(json.dumps(header), bytes(body)))
    return folder


class World:
    """One registry, one deployment of one base and one name, engines that outlive controllers."""

    def __init__(self, home: Path, registry: Registry, *, replicas: int = 1) -> None:
        self.home = home
        self.registry = registry
        self.engines = {index: FakeEngine() for index in range(2 * replicas)}
        self.front: FakeFront | None = FakeFront(self.engines)
        self.deployment = Deployment(
            "router",
            base="tiny:production",
            serves={"ticket-router": "ticket-router:production"},
            engine=VLLM(),
            replicas=replicas,
        )
        self.room = Room()
        self.revision = 1
        self.now = 1000.0
        self.epoch = 0
        self.said: list[str] = []
        self._made = 0

    def _folder(self, kind: str) -> Path:
        self._made += 1
        return self.home / f"{kind}-{self._made}"

    def publish_base(self, seed: int = 1, *, promote: bool = True, width: int = WIDTH) -> Version:
        folder = write_base(self._folder("base"), seed, width)
        version = self.registry.catalog.publish("tiny", folder, "model").version
        if promote:
            self.registry.promotions.promote(version.ref, "production")
        return version

    def publish(self, seed: int, *, base: str | None = "tiny:production", **changes: Any) -> Version:
        """A new version of the adapter, not promoted."""
        folder = write_lora(self._folder("adapter"), seed, **changes)
        parents = [Parent(self.registry.catalog.resolve(base).ref, Role.BASE)] if base else []
        return self.registry.catalog.publish("ticket-router", folder, "adapter", parents=parents).version

    def promote(self, version: Version) -> int:
        """Its generation."""
        return self.registry.promotions.promote(version.ref, "production").generation

    def controller(self) -> Controller:
        """A controller that has just come to lead: nothing in its memory, a higher epoch."""
        self.epoch += 1
        name = f"controller/{self.deployment.name}"
        lease = self.registry.leases.acquire(name, f"test-{self.epoch}", seen=self.registry.leases.get(name))
        assert lease is not None
        registry = self.registry.acting(Origin(ACTOR, authority=lease.authority))
        return Controller(
            Declared(self.deployment, self.revision),
            registry,
            self.engines,
            StoreStaging(self.home / "files", registry),
            epoch=lease.epoch,
            front=self.front,
            measure=lambda setup: self.room,
            report=lambda _, line: self.said.append(line),
            clock=lambda: self.now,
            dying_seconds=0.0,
        )

    async def settle(self, controller: Controller, *, rounds: int = 40) -> Plan:
        """Let a controller work, and time pass, until it waits for nothing."""
        for _ in range(rounds):
            plan = await controller.settle()
            if not plan.waiting and plan.wake_at > self.now + 1:
                return plan
            self.now = max(plan.wake_at, self.now + 0.01)
        raise AssertionError(f"it does not settle: {plan}; {self.said[-10:]}")

    def without_front(self) -> None:
        """Let clients ask the one replica itself."""
        self.front = None
        self.engines = {0: self.engines[0]}

    async def ask(
        self, model: str = "ticket-router", replica: int | None = None, *, key: str = ""
    ) -> dict[str, Any]:
        """The answer's JSON, with the status and the version that the header names."""
        asked = self.front if replica is None and self.front else self.engines[replica or 0]
        async with asked.client() as client:
            body = {"model": model, "prompt": "hello", "max_tokens": 4}
            headers = {"authorization": f"Bearer {key}"} if key else {}
            response = await client.post("/v1/completions", json=body, headers=headers)
        return {
            **response.json(),
            "status": response.status_code,
            "version": response.headers.get("x-podium-version"),
        }

    def rollouts(self) -> list[Rollout]:
        """Oldest first, of the adapter."""
        return [r for r in reversed(self.registry.deployments.rollouts("router")) if r.target.served]

    def events(self, prefix: str = "podium.rollout.") -> list[tuple[str, int]]:
        """(type, generation) of rollout events of the adapter, in order."""
        return [
            (event.type.removeprefix(prefix), int(event.data["generation"]))
            for event in self.registry.events.after(0, limit=1000)
            if event.type.startswith(prefix) and event.data["served"]
        ]
