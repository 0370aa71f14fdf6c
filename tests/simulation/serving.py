"""A deployment in a world: replicas, proxy and clients that outlive the controllers which lead them.

Planner, executor, controllers, leadership and the replicas' switchboards are the real ones. What is
simulated is what lies between and around: engines that take their time, die and are killed, calls whose
effect comes late, a proxy that hands out requests, and clients that ask without pause.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from registry.deployments import Loaded
from serving.engine import Answer, Fence, Launch, Observation, Phase, RouteMap
from serving.errors import AdapterRefused, EngineUnavailable, StaleController
from serving.front import FrontView
from serving.middleware import Problem, Switchboard
from tests.simulation.process import Process
from tests.simulation.world import World

SERVED = "bot"
FILES = Path("/files")
_RETRY_SECONDS = 0.01


@dataclass(frozen=True)
class Trouble:
    """How likely each thing is to go wrong at a replica. All zero: fair weather."""

    late: float = 0.0  # a call is given up, and its effect comes later
    lost: float = 0.0  # a call is given up, and has no effect
    start_fails: float = 0.0
    dies: float = 0.0  # a replica, a second
    proxy_dies: float = 0.0  # a second


CALM = Trouble()
TROUBLED = Trouble(late=0.01, lost=0.01, start_fails=0.1, dies=0.01, proxy_dies=0.004)


@dataclass
class Replica:
    """One place for a process, and what runs there."""

    launch: Launch | None = None
    record: str = ""  # of who started it last, as in its folder
    alive: bool = False
    ready_at: float = 0.0
    board: Switchboard = field(default_factory=Switchboard)
    models: dict[str, str] = field(default_factory=dict)  # name -> path


@dataclass(frozen=True)
class Request:
    """One request of a client and what came of it. Times are of the world, in seconds."""

    sent: float
    ended: float
    status: int
    admitted: float = 0.0
    version: str = ""
    digest: str = ""  # of the weights that answered
    base: str = ""  # the base under it
    why: str = ""
    excused: bool = False  # something that answered it was killed


@dataclass
class Site:
    """The machine on which the deployment runs."""

    world: World
    count: int
    trouble: Trouble = CALM
    refuses: frozenset[str] = frozenset()  # digests that engines do not load
    kills: frozenset[str] = frozenset()  # digests that take an engine down
    silent: frozenset[str] = frozenset()  # digests that answer as their base does
    start_seconds: float = 1.0
    tries: int = 5  # replicas that the proxy asks, one after the other, on a refusal
    replicas: dict[int, Replica] = field(default_factory=dict)
    staged: set[str] = field(default_factory=set)
    routed: dict[int, str] = field(default_factory=dict)
    fence: Fence = field(default_factory=Fence)
    proxy_alive: bool = False
    sessions: Counter[int] = field(default_factory=Counter)
    requests: list[Request] = field(default_factory=list)
    damages: list[float] = field(default_factory=list)  # when something was killed
    well_since: float | None = None  # when all that is routed to was well again; None: it is not
    _turn: int = 0

    def __post_init__(self) -> None:
        self.replicas = {index: Replica() for index in range(2 * self.count)}

    # What people and machines do to it

    def kill(self, index: int) -> None:
        replica = self.replicas[index]
        if replica.alive:
            self.world.note(f"replica {index} is killed")
            replica.alive = False
            self.damaged()

    def kill_proxy(self) -> None:
        if self.proxy_alive:
            self.world.note("the proxy is killed")
            self.proxy_alive = False
            self.damaged()

    def damaged(self) -> None:
        self.damages.append(self.world.now)
        self.well_since = None

    def look_well(self) -> None:
        """Note the moment at which everything that requests are sent to is able to answer."""
        well = self.proxy_alive and bool(self.routed) and all(map(self._is_well, self.routed))
        if not well:
            self.well_since = None
        elif self.well_since is None:
            self.well_since = self.world.now

    def _is_well(self, index: int) -> bool:
        replica = self.replicas[index]
        return replica.alive and replica.board.map is not None and not replica.board.draining

    # What clients do

    async def ask(self) -> None:
        """One request, as a proxy that asks another replica on a refusal carries it."""
        sent = self.world.now
        damages = len(self.damages)
        was_hurt = self._is_hurt()
        answer = await self._carry(sent)
        hurt = was_hurt or self._is_hurt() or len(self.damages) > damages
        self.requests.append(
            Request(**{**answer, "sent": sent, "ended": self.world.now, "excused": hurt})  # type: ignore[arg-type]
        )

    def _is_hurt(self) -> bool:
        """Something was killed, and what it did has not been taken over by anything since."""
        self.look_well()
        return bool(self.damages) and (self.well_since is None or self.well_since < self.damages[-1])

    async def _carry(self, sent: float) -> dict[str, object]:
        refused: set[int] = set()
        why = ""
        for _ in range(self.tries):
            if not self.proxy_alive or not self.routed:
                return {"status": 503, "why": "no proxy" if not self.proxy_alive else "nobody is routed to"}
            index = self._choose(refused)
            self.sessions[index] += 1
            try:
                answered = await self._reach(self.replicas[index])
            finally:
                self.sessions[index] -= 1
            if isinstance(answered, dict):
                return answered
            refused.add(index)
            why = f"replica {index}: {answered}"
            await asyncio.sleep(_RETRY_SECONDS)
        return {"status": 503, "why": why}

    def _choose(self, refused: set[int]) -> int:
        places = sorted(set(self.routed) - refused) or sorted(self.routed)
        self._turn += 1
        return places[self._turn % len(places)]

    async def _reach(self, replica: Replica) -> dict[str, object] | str:
        """The answer, or why another replica may be asked."""
        draw = self.world.random
        await asyncio.sleep(draw.expovariate(1 / 0.01))
        if not replica.alive or self.world.now < replica.ready_at:
            return "nobody listens"
        board, launch = replica.board, replica.launch
        assert launch is not None
        board.arriving += 1
        await asyncio.sleep(draw.expovariate(1 / (1.0 if draw.random() < 0.05 else 0.01)))
        board.arriving -= 1
        if not replica.alive or replica.board is not board:
            return "it went away"
        try:
            version = board.admit(SERVED)
        except Problem as problem:
            return (
                problem.message
                if problem.status == 503
                else {"status": problem.status, "why": problem.message}
            )
        admitted = self.world.now
        path = replica.models.get(version) or (str(launch.base_path) if version == launch.base_name else None)
        if path is None:
            board.finished(version)
            return {"status": 404, "why": f"{version} is not loaded"}
        await asyncio.sleep(draw.expovariate(1 / (5.0 if draw.random() < 0.1 else 0.3)))
        if not replica.alive or replica.board is not board:
            return {"status": 0, "why": "the answer was cut"}
        board.finished(version)
        digest = digest_of(path)
        if digest not in self.staged:
            return {"status": 500, "why": f"the files of {version} were gone while it answered"}
        base = digest_of(str(launch.base_path))
        return {"status": 200, "admitted": admitted, "version": version, "digest": digest, "base": base}


def path_of(digest: str) -> Path:
    return FILES / digest.removeprefix("sha256:")


def digest_of(path: str) -> str:
    return f"sha256:{Path(path).name}"


class SiteEngine:
    """One replica as one controller's process sees it."""

    def __init__(self, process: Process, site: Site, index: int) -> None:
        self._process = process
        self._site = site
        self._index = index
        self._record = site.replicas[index].record

    @property
    def _replica(self) -> Replica:
        return self._site.replicas[self._index]

    async def start(self, launch: Launch) -> None:
        await self._process.step()
        self._check_record()
        site, replica = self._site, self._replica
        self._record = replica.record = uuid.UUID(int=site.world.random.getrandbits(128)).hex
        replica.launch, replica.models = launch, {}
        replica.board = Switchboard(boot=self._record)
        replica.alive = not site.world.happens(site.trouble.start_fails)
        replica.ready_at = site.world.now + site.world.random.uniform(0.5, 1.5) * site.start_seconds
        site.world.note(f"{self._process.name} started replica {self._index} with {launch.base_name}")

    def _check_record(self) -> None:
        if self._replica.record != self._record:
            raise StaleController("Another controller has started what runs here.", remedy="")

    async def observe(self) -> Observation:
        await self._process.step()
        self._record = self._replica.record
        replica, launch = self._replica, self._replica.launch
        if launch is None:
            return Observation(Phase.ABSENT)
        if not replica.alive:
            return Observation(Phase.DEAD, fingerprint=launch.fingerprint, detail="it was killed")
        if self._site.world.now < replica.ready_at:
            return Observation(Phase.STARTING, fingerprint=launch.fingerprint)
        board = replica.board
        return Observation(
            phase=Phase.DRAINING if board.draining else Phase.READY,
            boot=board.boot,
            endpoint=f"http://replica-{self._index}",
            base=launch.base_name,
            fingerprint=launch.fingerprint,
            models=dict(replica.models),
            map=board.map,
            in_flight=dict(board.in_flight),
            arriving=board.arriving,
        )

    async def load(self, name: str, path: Path, fence: Fence) -> None:
        def act(replica: Replica) -> None:
            replica.board.check_change(fence)
            digest = digest_of(str(path))
            if digest in self._site.refuses:
                raise AdapterRefused(f"The engine did not load {name}.", remedy="")
            if digest in self._site.kills:
                self._site.kill(self._index)
                raise EngineUnavailable("The engine died.", remedy="")
            replica.models[name] = str(path)

        await self._call(act)

    async def unload(self, name: str, fence: Fence) -> None:
        def act(replica: Replica) -> None:
            replica.board.check_change(fence)
            replica.board.check_unload(name)
            replica.models.pop(name, None)

        await self._call(act)

    async def complete(self, model: str, prompts: Sequence[str], max_tokens: int = 1) -> list[Answer]:
        answers: list[Answer] = []

        def act(replica: Replica) -> None:
            assert replica.launch is not None
            path = replica.models.get(model, str(replica.launch.base_path))
            digest = digest_of(path)
            text = digest_of(str(replica.launch.base_path)) if digest in self._site.silent else digest
            answers.extend(Answer(model, text, ({text: -0.1},), "length") for _ in prompts)

        await self._call(act)
        return answers

    async def apply(self, routes: RouteMap, boot: str) -> None:
        await self._call(lambda replica: replica.board.apply(routes, boot))

    async def drain(self, fence: Fence, boot: str) -> None:
        await self._call(lambda replica: replica.board.drain(fence, boot))

    async def stop(self, grace: float) -> None:
        await self._process.step()
        if self._replica.record == self._record:  # what another controller has started has another token
            self._replica.alive = False
            self._replica.launch = None
            self._replica.board = Switchboard(boot="")
            self._site.world.note(f"{self._process.name} stopped replica {self._index}")

    async def close(self) -> None:
        return

    async def _call(self, act: Callable[[Replica], None]) -> None:
        """An effect at the process as it is then; its answer, or the effect itself, may be late or lost."""
        await self._process.step()
        world, board = self._site.world, self._replica.board

        def happen() -> None:
            replica = self._replica
            if not replica.alive or replica.board is not board or world.now < replica.ready_at:
                raise EngineUnavailable("The replica does not answer.", remedy="")
            try:
                act(replica)
            except Problem as problem:
                kind = StaleController if problem.status == 409 else EngineUnavailable
                raise kind(problem.message, remedy="") from problem

        if world.happens(self._site.trouble.late):

            async def late() -> None:
                try:
                    happen()
                except (StaleController, EngineUnavailable, AdapterRefused):
                    return

            world.later(late)
            raise EngineUnavailable("The replica did not answer in time.", remedy="")
        if world.happens(self._site.trouble.lost):
            raise EngineUnavailable("The replica did not answer.", remedy="")
        happen()
        await self._process.step()


class SiteFront:
    """The proxy as one controller's process sees it."""

    def __init__(self, process: Process, site: Site) -> None:
        self._process = process
        self._site = site

    async def observe(self) -> FrontView:
        await self._process.step()
        site = self._site
        sessions = {index: count for index, count in site.sessions.items() if count}
        return FrontView(site.proxy_alive, "http://front", dict(site.routed), sessions)

    async def route(self, backends: Mapping[int, str], fence: Fence) -> None:
        await self._process.step()
        if fence < self._site.fence:
            raise StaleController("A newer controller routes here.", remedy="")
        self._site.fence = fence
        self._site.routed = dict(backends)
        self._site.proxy_alive = True
        self._site.look_well()
        self._site.world.note(f"{self._process.name} routes to {sorted(backends)}")

    async def stop(self) -> None:
        await self._process.step()
        self._site.proxy_alive = False

    async def close(self) -> None:
        return


class SiteStaging:
    """Files as names alone."""

    def __init__(self, process: Process, site: Site) -> None:
        self._process = process
        self._site = site

    def staged(self) -> frozenset[str]:
        return frozenset(self._site.staged)

    def path(self, digest: str) -> Path:
        return path_of(digest)

    def stage(self, version: Loaded) -> None:
        self._process.between_transactions()
        self._site.staged.add(version.digest)

    def unstage(self, digest: str) -> None:
        self._process.check()
        self._site.staged.discard(digest)
