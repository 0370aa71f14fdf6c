"""The port to an inference engine: one replica of a deployment, as the controller sees it.

`serving.vllm_engine` supervises a real vLLM; `serving.fake_engine` is a small stand-in that ships for tests.
One suite runs on both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from serving.deployment import VLLM
from serving.middleware import Fence, RouteMap

__all__ = ["Answer", "Engine", "Fence", "Launch", "Observation", "Phase", "RouteMap"]


class Phase(StrEnum):
    """Where one engine process is in its life."""

    ABSENT = "absent"  # no process
    STARTING = "starting"  # a process that does not answer yet
    READY = "ready"  # it answers the controller
    DRAINING = "draining"  # it admits nothing more and will be stopped
    SILENT = "silent"  # it was ready, its process lives, and it does not answer
    DEAD = "dead"  # its process ended by itself


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look at a replica saw."""

    phase: Phase
    boot: str | None = None  # id of this start of the middleware
    endpoint: str | None = None  # "http://127.0.0.1:40123"
    base: str | None = None  # name under which the base model answers
    fingerprint: str | None = None  # of the base's content and the engine's settings
    models: Mapping[str, str] = field(default_factory=dict)  # loaded name -> path, without the base
    map: RouteMap | None = None  # the routes it has
    in_flight: Mapping[str, int] = field(default_factory=dict)  # version name -> answers under way
    arriving: int = 0  # requests that have begun and are not whole yet
    admitted: Mapping[str, int] = field(default_factory=dict)  # version name -> requests since boot
    refused: Mapping[str, int] = field(default_factory=dict)  # status -> requests that were not passed on
    ended: tuple[tuple[str, str, int, int, float], ...] = ()  # (name, version, status, answers, seconds)
    detail: str = ""  # why it is not ready: the end of its log, an error


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion of one prompt, with what is needed to tell two models apart."""

    model: str  # the name that the engine says answered
    text: str
    logprobs: tuple[
        Mapping[str, float], ...
    ]  # for each token, the most likely tokens with their log-probability
    finish: str  # "stop", "length", "abort"


@dataclass(frozen=True, slots=True)
class Launch:
    """With what a replica's process is to be started."""

    base_name: str  # "smollm2:v1"
    base_path: Path  # immutable folder named by digest
    fingerprint: str
    engine: VLLM | None = None  # its settings; None: as the replica was declared


class Engine(Protocol):
    """One replica. Calls may be repeated; all raise `EngineUnavailable` when the process does not answer."""

    async def start(self, launch: Launch) -> None:
        """Begin to start a process; `observe` says when it is ready."""

    async def observe(self) -> Observation:
        """Look at it. Never raises for a process that is absent, slow or dead: it says so."""

    async def load(self, name: str, path: Path, fence: Fence) -> None:
        """Load an adapter from an immutable path under an immutable name; loaded already is not an error.

        Raises:
            AdapterRefused: the engine cannot serve it.
            StaleController: another controller leads.
        """

    async def unload(self, name: str, fence: Fence) -> None:
        """Forget an adapter that no route needs and nobody is being answered by; absent is not an error."""

    async def complete(self, model: str, prompts: Sequence[str], max_tokens: int = 1) -> list[Answer]:
        """Greedy completions by a version name, open to clients or not."""

    async def apply(self, routes: RouteMap, boot: str) -> None:
        """Replace the whole map of routes; raises `StaleController` for an older one or another boot."""

    async def drain(self, fence: Fence, boot: str) -> None:
        """Admit nothing more."""

    async def stop(self, grace: float) -> None:
        """End the process: politely, and after ``grace`` seconds by force."""

    async def close(self) -> None:
        """Let go of the replica without ending it."""
