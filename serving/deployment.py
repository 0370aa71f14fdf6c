"""What a user writes to have something served: `Deployment` and its engine `VLLM`, as frozen values."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from registry.errors import InvalidApp, InvalidReference
from registry.references import Reference, check_name

__all__ = ["VLLM", "Deployment", "is_public_address"]

# Flags that podium sets itself: a second value would open a door or change which names are served.
_OWN_FLAGS = frozenset(
    {
        "--api-key",
        "--api-server-count",
        "--enable-lora",
        "--host",
        "--lora-modules",
        "--max-cpu-loras",
        "--max-lora-rank",
        "--max-loras",
        "--middleware",
        "--model",
        "--port",
        "--root-path",
        "--served-model-name",
        "--uds",
    }
)
MOST_REPLICAS = 16
_VERSIONS_PER_NAME = 3  # the live one, the one before it, and the one that is being rolled out


@dataclass(frozen=True, slots=True)
class VLLM:
    """How each vLLM process of a deployment is started.

    ``python`` is the interpreter of another environment that has vLLM; by default this one's.
    """

    max_lora_rank: int = 16
    max_loras: int = 2  # versions that may share one step on the device
    max_cpu_loras: int = 16  # versions kept in host memory, ready to be used
    args: tuple[str, ...] = ()  # further flags of vLLM, as on its command line
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    module: str = "vllm.entrypoints.openai.api_server"  # "serving.fake_vllm" stands in for it in tests
    start_timeout: float = 900.0  # seconds until a process that is not ready is given up

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", dict(self.env))
        if self.max_loras < 2:
            raise InvalidApp(
                f"VLLM(max_loras={self.max_loras}) cannot change versions without a pause.",
                remedy="Use max_loras=2 or more: with one, a new version waits for every answer of the old.",
            )
        if self.max_lora_rank not in (1, 8, 16, 32, 64, 128, 256, 320, 512):
            raise InvalidApp(
                f"VLLM(max_lora_rank={self.max_lora_rank}) is not a rank that vLLM takes.",
                remedy="Use 8, 16, 32, 64, 128, 256, 320 or 512.",
            )
        taken = [arg for arg in self.args if arg.partition("=")[0].replace("_", "-") in _OWN_FLAGS]
        if taken:
            raise InvalidApp(
                f"VLLM(args=...) may not set {taken[0]}.", remedy="podium sets it; leave it out."
            )

    def to_json(self) -> dict[str, Any]:
        return {"type": "vllm", **asdict(self), "args": list(self.args)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> VLLM:
        """Read what `to_json` wrote; raises `InvalidApp`."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(raw) - known - {"type"})
        if raw.get("type") != "vllm" or unknown:
            raise InvalidApp(
                f"An engine of type {raw.get('type')!r} with {unknown or 'these fields'} is not known here.",
                remedy="It was declared by another version of podium: deploy the app again with this one.",
            )
        return cls(**{key: value for key, value in raw.items() if key in known})

    def to_text(self, restarts: int = 0) -> str:
        """All that makes a running process another one, with how often processes were asked to begin anew."""
        return json.dumps({"settings": self.to_json(), "restarts": restarts}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> VLLM:
        """Read what `to_text` wrote; raises `InvalidApp`."""
        return cls.from_json(json.loads(text)["settings"])

    def fingerprint(self) -> str:
        """A digest of the settings; it changes with any field."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What serving keeps true: a base model, and names that follow references.

    ``Deployment("router", base="smollm2:production", serves={"ticket-router": "ticket-router:production"})``
    """

    deployable: ClassVar[str] = "deployment"

    name: str
    base: str  # reference of a model
    serves: Mapping[str, str] = field(default_factory=dict)  # name that clients ask for -> reference
    engine: VLLM = field(default_factory=VLLM)
    replicas: int = 1
    port: int | None = None  # None: a free one, kept over restarts
    host: str = "127.0.0.1"  # address to listen at; any but a loopback one needs HAProxy, and keys of clients
    paused: bool = False  # True: what runs goes on running, nothing is changed
    allow_downtime: bool = False  # True: where two copies do not fit, the old one is stopped first

    def __post_init__(self) -> None:
        object.__setattr__(self, "serves", dict(self.serves))
        try:
            check_name(self.name)
            for served in self.serves:
                check_name(served)
            for reference in self.references:
                reference.require_explicit("serve")
        except InvalidReference as error:
            raise InvalidApp(f"Deployment {self.name!r}: {error.message}", remedy=error.remedy) from error
        _check_host(self.name, self.host)
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise InvalidApp(
                f"Deployment {self.name!r} asks for {self.replicas} replicas.",
                remedy=f"Use 1 to {MOST_REPLICAS} on one machine.",
            )
        if len(self.serves) * _VERSIONS_PER_NAME > self.engine.max_cpu_loras:
            raise InvalidApp(
                f"Deployment {self.name!r} serves {len(self.serves)} names, each with up to "
                f"{_VERSIONS_PER_NAME} versions loaded, but the engine keeps {self.engine.max_cpu_loras}.",
                remedy=f"Use VLLM(max_cpu_loras={len(self.serves) * _VERSIONS_PER_NAME}) or more.",
            )

    @property
    def is_public(self) -> bool:
        """Whether other machines may reach it. Nobody is answered then without a key."""
        return is_public_address(self.host)

    @property
    def references(self) -> Sequence[Reference]:
        """The base's reference, then those of the served names."""
        return [Reference.parse(self.base), *(Reference.parse(text) for text in self.serves.values())]

    def to_json(self) -> dict[str, Any]:
        """The declaration as plain JSON, without the name."""
        return {
            "base": self.base,
            "serves": dict(self.serves),
            "engine": self.engine.to_json(),
            "replicas": self.replicas,
            "port": self.port,
            "host": self.host,
            "paused": self.paused,
            "allow_downtime": self.allow_downtime,
        }

    @classmethod
    def from_json(cls, name: str, raw: Mapping[str, Any]) -> Deployment:
        """Read what `to_json` wrote; raises `InvalidApp`."""
        unknown = sorted(set(raw) - {f.name for f in fields(cls)})
        if unknown:
            raise InvalidApp(
                f"Deployment {name!r} has fields that are not known here: {', '.join(unknown)}.",
                remedy="It was declared by another version of podium: deploy the app again with this one.",
            )
        return cls(name=name, **{**raw, "engine": VLLM.from_json(raw["engine"])})


def is_public_address(host: str) -> bool:
    """Whether an IP address to listen at can be reached from other machines."""
    return not ipaddress.ip_address(host).is_loopback


def _check_host(name: str, host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError as error:
        raise InvalidApp(
            f"Deployment {name!r} cannot listen at {host!r}: it is no IP address.",
            remedy="Use host='0.0.0.0' for all interfaces, or the address of one.",
        ) from error
