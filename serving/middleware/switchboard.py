"""Which version answers a name, and how many answers each version has under way."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .problem import Problem
from .routes import Fence, RouteMap


@dataclass
class Tally:
    """How many answers came to an end in one way, and how long they took together."""

    count: int = 0
    seconds: float = 0.0


@dataclass
class Switchboard:
    """The state of one replica's door. Nothing in it awaits, so each call is one step for everybody."""

    boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    map: RouteMap | None = None
    draining: bool = False
    arriving: int = 0  # requests that have begun and are not whole yet
    arriving_bytes: int = 0  # what they hold in memory
    in_flight: Counter[str] = field(default_factory=Counter)
    admitted: Counter[str] = field(default_factory=Counter)  # since boot, by version
    refused: Counter[int] = field(default_factory=Counter)  # since boot, by status
    ended: dict[tuple[str, str, int], Tally] = field(
        default_factory=dict
    )  # since boot, by (name that was asked for, version, status)

    def apply(self, new: RouteMap, boot: str) -> None:
        """Take a map, unless this boot, or what it holds, is not what the sender thinks; raises `Problem`."""
        self._check_authority(new.fence, boot)
        if self.map is not None and new.fence == self.map.fence and new != self.map:
            raise Problem(409, "ConflictError", "Another map of this generation is already applied.", "fence")
        self.map = new

    def drain(self, fence: Fence, boot: str) -> None:
        """Admit nothing more until this process ends; raises `Problem`."""
        self._check_authority(fence, boot)
        self.draining = True

    def check_change(self, fence: Fence) -> None:
        """May a controller with this fence load or unload something here? Raises `Problem`."""
        self._check_authority(fence, self.boot)

    def check_unload(self, name: str) -> None:
        """A version that clients can reach, or that still answers, is not unloaded; raises `Problem`."""
        if self.map is not None and name in self.map.open:
            raise Problem(409, "ConflictError", f"{name} is open to clients.", "lora_name")
        if self.in_flight[name]:
            raise Problem(409, "ConflictError", f"{name} is still answering.", "lora_name")

    def _check_authority(self, fence: Fence, boot: str) -> None:
        if boot != self.boot:
            raise Problem(409, "ConflictError", f"This is boot {self.boot}, not {boot}.", "boot")
        if self.map is not None and fence < self.map.fence:
            raise Problem(409, "ConflictError", f"A newer map is applied: {self.map.fence}.", "fence")

    def admit(self, name: str) -> str:
        """Choose and count the version that answers ``name``; raises `Problem`."""
        current = self.ready_map()
        version = current.routes.get(name)
        if version is None:
            if name not in current.open:
                served = ", ".join(sorted({*current.routes, *current.open})) or "nothing yet"
                raise Problem(
                    404, "NotFoundError", f"The model `{name}` is not served here. Served: {served}.", "model"
                )
            version = name
        self.in_flight[version] += 1
        self.admitted[version] += 1
        return version

    def finished(self, version: str) -> None:
        """One answer of the version has ended, well or not."""
        self.in_flight[version] -= 1
        if self.in_flight[version] <= 0:
            del self.in_flight[version]

    def count(self, name: str, version: str, status: int, seconds: float) -> None:
        """Note how an answer to ``name`` ended."""
        tally = self.ended.setdefault((name, version, status), Tally())
        tally.count += 1
        tally.seconds += seconds

    def ready_map(self) -> RouteMap:
        """The map, if this replica answers clients; raises `Problem`."""
        if self.draining:
            raise Problem(503, "ServiceUnavailableError", "This replica is about to stop.")
        if self.map is None:
            raise Problem(503, "ServiceUnavailableError", "This replica has no routes yet.")
        return self.map

    def models(self) -> dict[str, Any]:
        """The names that clients may ask for, in the shape of OpenAI's list; raises `Problem`."""
        current = self.ready_map()
        entries = [
            {"id": name, "object": "model", "owned_by": "podium", "root": version}
            for name, version in sorted(current.routes.items())
        ]
        entries += [
            {"id": name, "object": "model", "owned_by": "podium", "root": name}
            for name in sorted(current.open - set(current.routes))
        ]
        return {"object": "list", "data": entries}

    def state(self) -> dict[str, Any]:
        """All that the controller observes."""
        return {
            "boot": self.boot,
            "map": self.map.to_json() if self.map else None,
            "draining": self.draining,
            "arriving": self.arriving,
            "in_flight": dict(self.in_flight),
            "admitted": dict(self.admitted),
            "refused": {str(status): count for status, count in self.refused.items()},
            "ended": [
                [name, version, status, tally.count, tally.seconds]
                for (name, version, status), tally in self.ended.items()
            ],
        }
