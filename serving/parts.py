"""Of what a deployment is made on this machine: its engines, the proxy before them, and the room for more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from registry.protocol import Registry
from serving.child import Child
from serving.deployment import Deployment
from serving.engine import Engine
from serving.errors import EngineUnavailable
from serving.front import Front
from serving.haproxy import PROXY_LOG, HAProxy, find_haproxy
from serving.measuring import MachineRoom
from serving.room import Room
from serving.staging import Staging, StoreStaging
from serving.state import Setup
from serving.vllm_engine import VLLMEngine

__all__ = ["MakeParts", "Parts", "parts_on_this_machine"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The places of a deployment's processes (index -> engine), and what leads to them."""

    engines: Mapping[int, Engine]
    front: Front | None = None  # None: clients ask the one replica itself
    measure: Callable[[Setup], Room] = lambda setup: Room()
    staging: Callable[[Path, Registry], Staging] = StoreStaging


#: Makes the parts of a deployment in its folder; they find again what runs there.
MakeParts = Callable[[Deployment, Path], Parts]


def parts_on_this_machine(haproxy: str | None = None) -> MakeParts:
    """vLLM processes behind HAProxy; ``haproxy`` is the executable, found on PATH unless set."""

    def make(deployment: Deployment, folder: Path) -> Parts:
        public = _public_port(deployment, folder, find_haproxy(haproxy), haproxy)
        settings = deployment.engine
        if public is None:
            engines = {0: VLLMEngine(folder / "replica-0", settings, deployment.port)}
            return Parts(engines, None, MachineRoom(folder).measure)
        proxy = HAProxy(folder / "proxy", find_haproxy(haproxy) or "", public, deployment.host)
        places = {
            index: VLLMEngine(folder / f"replica-{index}", settings, avoid=public)
            for index in _places(deployment, folder)
        }
        return Parts(places, proxy, MachineRoom(folder).measure)

    return make


def _public_port(
    deployment: Deployment, folder: Path, executable: str | None, setting: str | None
) -> int | None:
    """The port of the proxy, reserved from now on; None where the one replica is asked directly.

    Raises:
        EngineUnavailable: there must be a proxy, and there is no HAProxy.
    """
    first, proxy = Child(folder / "replica-0"), Child(folder / "proxy", PROXY_LOG)
    if executable is None:
        if deployment.replicas == 1 and not deployment.is_public:
            return None
        why = (
            f"listens at {deployment.host}" if deployment.is_public else f"has {deployment.replicas} replicas"
        )
        raise EngineUnavailable(
            f"Deployment {deployment.name!r} {why}, which needs HAProxy in front, "
            f"and {setting or 'haproxy'} is not found.",
            remedy="Install it ('apt-get install haproxy'), or set PODIUM_HAPROXY to the executable.",
        )
    if proxy.record is not None:
        return deployment.port or proxy.record.port
    if deployment.replicas == 1 and first.is_alive() and not deployment.is_public:
        return None  # it was started when there was no HAProxy, and clients know its address
    known = first.record.port if first.record else None
    return proxy.prepare(deployment.port or known, "", "").port


def _places(deployment: Deployment, folder: Path) -> list[int]:
    """Twice as many as replicas, so that others can be started beside them; and all that were ever used."""
    used = [int(path.name.partition("-")[2]) for path in folder.glob("replica-[0-9]*")]
    return sorted({*range(2 * deployment.replicas), *used})
