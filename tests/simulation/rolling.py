"""Worlds in which versions are promoted under clients while controllers, replicas and proxy are killed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from registry.deployments import BASE, TERMINAL, RolloutState
from registry.errors import PodiumError
from serving.deployment import Deployment
from serving.desiring import Declared
from serving.parts import Parts
from serving.reconcile import run_controllers
from tests.common.serving import write_base, write_lora
from tests.simulation.actors import registry_of
from tests.simulation.beginning import _empty
from tests.simulation.blobs import SharedStore
from tests.simulation.process import Process
from tests.simulation.serving import CALM, SERVED, Site, SiteEngine, SiteFront, SiteStaging, Trouble
from tests.simulation.storage import SharedRegistry, image_of
from tests.simulation.world import FAIR, Beginning, Broken, Faults, Kill, World

ADAPTERS, BASES = 6, 2
REFUSED, DEADLY, SILENT = 4, 5, 6  # numbers of adapters that cannot be served, each in its own way
GOOD = tuple(number for number in range(1, ADAPTERS + 1) if number < REFUSED)
_NAME = "router"


def play(
    seed: int = 0,
    *,
    replicas: int = 2,
    controllers: int = 2,
    faults: Faults = FAIR,
    trouble: Trouble = CALM,
    kill: Kill | None = None,
    moves: int = 8,
    bad: bool = True,
    bases: bool = True,
    pace: float = 6.0,
    clients: int = 4,
    tries: int = 5,
) -> tuple[World, Site]:
    """Run one schedule to its quiet end and check it. Raises `world.Broken`."""
    world = World(_beginning(), seed=seed, kill=kill)
    site = _site(world, replicas)

    async def main() -> None:
        for number in range(controllers):
            world.start(f"controller-{number}", _controller(site, replicas))
        process = Process(world, "user")
        registry = registry_of(process, "user:ada")
        registry.promotions.promote("tiny:v1", "production")
        registry.promotions.promote("bot:v1", "production")
        live = Live(world)
        await world.until(lambda: bool(live.reported), "the first version is live", limit=300)
        world.faults, site.trouble, site.tries = faults, trouble, tries
        asking = [world.loop.create_task(_client(site)) for _ in range(clients)]
        hurting = world.loop.create_task(_hurt(site))
        await _move(world, registry, moves, bad=bad, bases=bases, pace=pace)
        hurting.cancel()
        world.heal()
        site.trouble = CALM
        await world.until(lambda: _is_quiet(site, registry), "all rollouts have ended", limit=900)
        await asyncio.sleep(3)
        for task in asking:
            task.cancel()
        await asyncio.wait([hurting, *asking])
        _check(site, registry, live)

    world.run(main(), limit=7200)
    return world, site


class Live:
    """What was decided and reported of the served name, and when: seen at each commit."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.decided: list[str] = []  # rollouts in the order in which the route was moved to them
        self.reported: list[tuple[float, str]] = []  # (when it was reported live, rollout)
        world.on_commit.append(self._look)

    def _look(self) -> None:
        route = self._world.connection.execute(
            "SELECT rollout FROM route WHERE served = ?", (SERVED,)
        ).fetchone()
        if route is None:
            return
        (rollout,) = route
        if rollout not in self.decided:
            self.decided.append(rollout)
        (state,) = self._world.connection.execute(
            "SELECT state FROM rollout WHERE id = ?", (rollout,)
        ).fetchone()
        if state == RolloutState.LIVE and rollout not in [each for _, each in self.reported]:
            self.reported.append((self._world.now, rollout))

    def allowed_at(self, when: float) -> list[str]:
        """Rollouts by which a request that is admitted then may be answered."""
        before = [rollout for at, rollout in self.reported if at <= when]
        return self.decided[self.decided.index(before[-1]) :] if before else []


def _site(world: World, replicas: int) -> Site:
    rows = world.connection.execute(
        "SELECT a.name, v.number, v.digest FROM version v JOIN artifact a ON a.id = v.artifact_id"
    ).fetchall()
    digests = {(name, number): digest for name, number, digest in rows}
    return Site(
        world,
        replicas,
        refuses=frozenset({digests["bot", REFUSED]}),
        kills=frozenset({digests["bot", DEADLY]}),
        silent=frozenset({digests["bot", SILENT]}),
    )


def _controller(site: Site, replicas: int) -> Callable[[Process], Awaitable[None]]:
    declared = Declared(
        Deployment(_NAME, base="tiny:production", serves={SERVED: "bot:production"}, replicas=replicas), 1
    )

    async def main(process: Process) -> None:
        registry = registry_of(process, "system:serving")

        def make_parts(deployment: Deployment, folder: Path) -> Parts:
            engines = {index: SiteEngine(process, site, index) for index in site.replicas}
            return Parts(engines, SiteFront(process, site), staging=lambda *_: SiteStaging(process, site))

        await run_controllers(
            registry,
            asyncio.Event(),
            asyncio.Event(),
            lambda name, line: site.world.note(f"{process.name}: {line}"),
            source=lambda: {_NAME: declared},
            folder=Path("/nonexistent"),
            make_parts=make_parts,
            leave_running=True,
        )

    return main


async def _client(site: Site) -> None:
    while True:
        await asyncio.sleep(site.world.random.expovariate(1 / 0.2))
        await site.ask()


async def _hurt(site: Site) -> None:
    """Kill replicas and the proxy, now and then."""
    while True:
        await asyncio.sleep(1)
        for index in site.replicas:
            if site.world.happens(site.trouble.dies):
                site.kill(index)
        if site.world.happens(site.trouble.proxy_dies):
            site.kill_proxy()


async def _move(
    world: World, registry: SharedRegistry, moves: int, *, bad: bool, bases: bool, pace: float
) -> None:
    """Promote and roll back, some in quick succession."""
    draw = world.random
    for _ in range(moves):
        await asyncio.sleep(draw.choice((0.0, 0.1, pace, 2 * pace)) * draw.random())
        with suppress(PodiumError):
            match draw.choices(("adapter", "rollback", "base"), (6, 2, 2 if bases else 0))[0]:
                case "adapter":
                    number = draw.randint(1, ADAPTERS) if bad else draw.choice(GOOD)
                    registry.promotions.promote(f"bot:v{number}", "production")
                    world.note(f"promoted bot:v{number}")
                case "rollback":
                    registry.promotions.rollback("bot", "production")
                    world.note("rolled back")
                case "base":
                    number = draw.randint(1, BASES)
                    registry.promotions.promote(f"tiny:v{number}", "production")
                    world.note(f"promoted tiny:v{number}")


def _is_quiet(site: Site, registry: SharedRegistry) -> bool:
    """Every promotion has come to its end, and what the alias says is what every replica says."""
    if registry.deployments.open_rollouts(_NAME):
        return False
    table = registry.deployments.routes(_NAME)
    for name, served in (("tiny", BASE), ("bot", SERVED)):
        if table.routes[served].generation != registry.promotions.get(name, "production").generation:
            return False
    alive = {index for index, replica in site.replicas.items() if replica.alive}
    return len(alive) == site.count and set(site.routed) == alive and site.proxy_alive


def _check(site: Site, registry: SharedRegistry, live: Live) -> None:
    story = site.world.story
    _check_history(registry, story)
    refs = dict(_digests(site.world))
    for request in site.requests:
        if request.status != 200:
            if not request.excused:
                raise Broken(f"a client was failed: {request}\n{story()}")
            continue
        if refs[request.version] != request.digest:
            raise Broken(f"answered by other weights: {request}\n{story()}")
        if request.version in {f"bot:v{number}" for number in (REFUSED, DEADLY, SILENT)}:
            raise Broken(f"a version that cannot be served took traffic: {request}\n{story()}")
    _check_late(site, live, story)
    if not site.requests:
        raise Broken("nobody asked")


def _check_history(registry: SharedRegistry, story: Callable[[], str]) -> None:
    """Each promotion has one rollout, which has ended; and one event of its end."""
    for artifact in ("tiny", "bot"):
        generations = [p.generation for p in registry.promotions.history(artifact, "production", limit=1000)]
        rollouts = [
            r for r in registry.deployments.rollouts(_NAME, limit=1000) if r.target.artifact == artifact
        ]
        if sorted(r.target.generation for r in rollouts) != sorted(generations):
            raise Broken(f"promotions and rollouts of {artifact} differ\n{story()}")
        if any(rollout.state not in TERMINAL for rollout in rollouts):
            raise Broken(f"a rollout has not ended\n{story()}")
        ends = [
            event.data["generation"]
            for event in registry.events.after(0, limit=10_000)
            if event.type in {f"podium.rollout.{state.value}" for state in TERMINAL}
            and event.data["artifact"] == artifact
        ]
        if sorted(ends) != sorted(generations):
            raise Broken(f"not one end for each promotion of {artifact}\n{story()}")


def _check_late(site: Site, live: Live, story: Callable[[], str]) -> None:
    """What was admitted after a version was reported live is answered by it, or by one decided later."""
    versions = {
        rollout: f"bot:v{version}"
        for rollout, version in site.world.connection.execute(
            "SELECT id, version FROM rollout WHERE served = ?", (SERVED,)
        )
    }
    for request in site.requests:
        if request.status != 200:
            continue
        if request.version not in {versions[rollout] for rollout in live.allowed_at(request.admitted)}:
            raise Broken(f"answered by what was no longer live: {request}\n{story()}")


def _digests(world: World) -> list[tuple[str, str]]:
    return [
        (f"{name}:v{number}", digest)
        for name, number, digest in world.connection.execute(
            "SELECT a.name, v.number, v.digest FROM version v JOIN artifact a ON a.id = v.artifact_id"
        )
    ]


@cache
def _beginning() -> Beginning:
    """Bases and adapters, none promoted."""
    world = World(_empty())
    try:
        process = Process(world, "maker")
        registry = SharedRegistry.of(process, SharedStore(process), "user:maker")
        with tempfile.TemporaryDirectory() as scratch:
            for number in range(1, BASES + 1):
                registry.catalog.publish("tiny", write_base(Path(scratch, f"base-{number}"), number), "model")
            for number in range(1, ADAPTERS + 1):
                folder = write_lora(Path(scratch, f"adapter-{number}"), number)
                registry.catalog.publish("bot", folder, "adapter")
        return Beginning(image_of(world.connection), dict(world.chunks), world.database_id)
    finally:
        world.loop.close()
