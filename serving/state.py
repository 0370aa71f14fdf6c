"""What the planner reads (`Desired`, `Observed`) and what it asks for (the steps), as frozen values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from registry.deployments import BASE, Loaded, Rollout, RolloutState, RouteTable, Target
from serving.engine import Fence, Observation, RouteMap
from serving.front import FrontView
from serving.preflight import Finding
from serving.room import Room

__all__ = [
    "Apply",
    "Attempts",
    "Begin",
    "Check",
    "CloseFront",
    "Desired",
    "Drain",
    "DropRoute",
    "Fail",
    "Finish",
    "Flip",
    "Forget",
    "Load",
    "Observed",
    "Plan",
    "Probe",
    "Route",
    "Setup",
    "Stage",
    "Start",
    "Step",
    "Stop",
    "Switch",
    "Unload",
    "Unstage",
    "route_map",
]


@dataclass(frozen=True, slots=True)
class Setup:
    """What the processes of one colour have in common: a base, and the engine's settings as text."""

    base: Loaded
    engine: str

    @property
    def fingerprint(self) -> str:
        """What tells a process of this setup from one that must be replaced."""
        return f"{self.base.digest}/{self.base.ref}/{hashlib.sha256(self.engine.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Desired:
    """A declaration with its references resolved. A target is None while its alias does not exist."""

    deployment: str
    base: Target | None
    serves: Mapping[str, Target | None]
    engine: str  # the engine's settings as text, with the number of restarts that were asked for
    replicas: int = 1
    allow_downtime: bool = False  # the old processes may be stopped before the new ones are ready
    paused: bool = False
    removed: bool = False  # it is no longer declared: stop it

    def targets(self) -> dict[str, Target | None]:
        """All targets by served name, the base's first."""
        return {BASE: self.base, **self.serves}


@dataclass(frozen=True, slots=True)
class Attempts:
    """What went wrong with one thing since it last went well."""

    count: int
    last_at: float  # seconds, of the same clock as the planner's ``now``
    reason: str
    certain: bool = False  # it would fail the same way again
    fatal: bool = False  # it took a replica down


@dataclass(frozen=True, slots=True)
class Observed:
    """All that is known of a deployment now: by the registry, the replicas, and this controller's memory."""

    table: RouteTable
    open: Mapping[str, Rollout]  # the open rollout of each served name
    latest: Mapping[str, Rollout]  # the newest of each served name, ended or not
    replicas: Mapping[int, Observation]
    incarnation: int = 1
    epoch: int = 1
    staged: frozenset[str] = frozenset()  # digests whose files are on this machine, verified
    checked: Mapping[tuple[str, str], tuple[Finding, ...]] = field(
        default_factory=dict
    )  # (digest, base digest)
    probed: frozenset[tuple[str, str]] = frozenset()  # (boot, version name)
    blocked: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (digest, base digest) -> reason
    attempts: Mapping[str, Attempts] = field(default_factory=dict)
    since: Mapping[int, float] = field(default_factory=dict)  # replica -> when it came into its phase
    front: FrontView | None = None  # None: clients ask the one replica itself
    room: Room = field(default_factory=Room)

    @property
    def fence(self) -> Fence:
        return Fence(self.incarnation, self.epoch, self.table.generation)


@dataclass(frozen=True, slots=True)
class Begin:
    target: Target


@dataclass(frozen=True, slots=True)
class Flip:
    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Switch:
    """Decide, at once, that another setup serves, and that these rollouts are flipped with it."""

    setup: Setup
    rollouts: tuple[Rollout, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    rollout: Rollout
    state: RolloutState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """End a rollout as failed, put its alias back, and block its content where the cause is certain."""

    rollout: Rollout
    reason: str
    certain: bool


@dataclass(frozen=True, slots=True)
class DropRoute:
    served: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing of a removed deployment is left: one of its name would begin anew."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Bring a content's files to this machine, whole and verified."""

    version: Loaded
    rollout: Rollout | None = None  # to whose account a failure goes


@dataclass(frozen=True, slots=True)
class Check:
    """Preflight an adapter against a base; both are staged."""

    version: Loaded
    base: Loaded
    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Start:
    replica: int
    setup: Setup


@dataclass(frozen=True, slots=True)
class Route:
    """Have the proxy send new requests to these replicas (index -> endpoint), and to no others."""

    backends: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class CloseFront:
    """End the proxy: nothing is left behind it."""


@dataclass(frozen=True, slots=True)
class Drain:
    replica: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    replica: int
    reason: str


@dataclass(frozen=True, slots=True)
class Load:
    replica: int
    version: Loaded
    rollout: Rollout | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask a loaded version (or the base) some prompts; it must answer, and not as the base does."""

    replica: int
    version: Loaded
    is_base: bool
    rollout: Rollout | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    replica: int
    routes: RouteMap


@dataclass(frozen=True, slots=True)
class Unload:
    replica: int
    ref: str


@dataclass(frozen=True, slots=True)
class Unstage:
    digest: str


Step = (
    Begin
    | Flip
    | Switch
    | Finish
    | Fail
    | DropRoute
    | Forget
    | Stage
    | Check
    | Start
    | Route
    | CloseFront
    | Drain
    | Stop
    | Load
    | Probe
    | Apply
    | Unload
    | Unstage
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps to take now, in order, and when to look again if nothing else happens."""

    steps: tuple[Step, ...]
    wake_at: float
    waiting: tuple[str, ...] = ()  # what keeps it from being done, in words
    needed: tuple[str, ...] = ()  # what it does not work at, because a person has to act first


def route_map(table: RouteTable, fence: Fence) -> RouteMap:
    """The map that every replica must have. The base answers under its own name whoever else names it."""
    base = table.base
    names = {
        served: base.ref if base and route.current.digest == base.digest else route.current.ref
        for served, route in table.routes.items()
        if served != BASE
    }
    kept = {
        route.previous.ref
        for served, route in table.routes.items()
        if served != BASE and route.previous and not (base and route.previous.digest == base.digest)
    }
    opened = kept | ({base.ref} if base else set())
    return RouteMap(fence, names, frozenset(opened), table.keys)
