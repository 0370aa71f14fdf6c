"""Worlds in which folders are published, by processes that die on the way and start again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from registry.errors import DatabaseUnavailable, StoreUnavailable
from registry.values import Published
from tests.common.content import write_dataset
from tests.simulation import oracle
from tests.simulation.actors import Main, registry_of, relay
from tests.simulation.beginning import beginning
from tests.simulation.process import Process
from tests.simulation.world import FAIR, Broken, Faults, Kill, World

ARTIFACT = "cat"


class Inline:
    """A pool of threads that has none: the same work, in an order that does not depend on the machine."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, act: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(act(*arguments))
        except BaseException as error:
            future.set_exception(error)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Nothing is left to do."""


@dataclass
class Told:
    """What publishers were told."""

    published: list[Published] = field(default_factory=list)
    versions: dict[Path, set[int]] = field(default_factory=dict)


def folders(root: Path) -> list[Path]:
    """Three contents; the second shares two chunks with the first."""
    shared = {"a.txt": b"the same", "b.txt": b"in both"}
    contents: list[dict[str, bytes]] = [
        {**shared, "c.txt": b"first"},
        {**shared, "c.txt": b"second", "d/e.txt": b"deeper"},
        {"one.txt": b"1", "two.txt": b"2", "three.txt": b"3"},
    ]
    paths = [root / str(number) for number in range(len(contents))]
    if not root.joinpath("0").exists():
        for path, files in zip(paths, contents, strict=True):
            write_dataset(path, files)
    return paths


def publisher(paths: Sequence[Path], told: Told) -> Main:
    """Publishes each folder until it is told that it is there, in as many lives as that takes."""
    left = list(paths)

    async def main(process: Process) -> None:
        registry = registry_of(process)
        while left:
            path = left[0]
            with suppress(DatabaseUnavailable, StoreUnavailable):
                published = await process.interleaved(
                    lambda path=path: registry.catalog.publish(ARTIFACT, path, "dataset")
                )
                process.world.note(f"{process.name} was told {published.version.ref}")
                told.published.append(published)
                told.versions.setdefault(path, set()).add(published.version.number)
                left.pop(0)

    return main


def play(
    root: Path,
    seed: int = 0,
    *,
    faults: Faults = FAIR,
    kill: Kill | None = None,
    publishers: int = 1,
) -> World:
    """Run one schedule to its end and check it. Raises `world.Broken`."""
    world = World(beginning(), seed=seed, faults=faults, kill=kill)
    world.on_commit.append(lambda: check_whole(world))
    paths, told = folders(root), Told()

    async def main() -> None:
        names = [f"publisher-{number}" for number in range(publishers)]
        for name in names:
            world.start(name, publisher(world.random.sample(paths, len(paths)), told))
        world.start("relay", relay())
        await world.until(lambda: world.ended(names), "the publishers' end")
        world.heal()
        await world.until(lambda: oracle.quiet(world), "all events in the stream")

    world.run(main())
    check_whole(world)
    check_told(world, told)
    oracle.check_streams(world)
    if publishers == 1:
        check_sent_once(world)
    return world


def check_whole(world: World) -> None:
    """Invariant 2: a version that is visible has all its chunks, at every moment."""
    missing = [
        (name, number, chunk)
        for name, number, chunk in world.connection.execute(
            "SELECT artifact.name, version.number, content_chunk.chunk FROM version"
            " JOIN artifact ON artifact.id = version.artifact_id"
            " JOIN content_chunk ON content_chunk.digest = version.digest WHERE version.deleted_at IS NULL"
        )
        if chunk not in world.chunks
    ]
    if missing:
        raise Broken(f"a version with a hole: {missing[0]}\n{world.story()}")


def check_told(world: World, told: Told) -> None:
    """One version for each content, whoever publishes it and how often; each with one event."""
    rows = world.connection.execute(
        "SELECT number, digest FROM version JOIN artifact ON artifact.id = artifact_id"
        " WHERE artifact.name = ?",
        (ARTIFACT,),
    ).fetchall()
    there = dict(rows)
    for each in told.published:
        if there.get(each.version.number) != each.version.digest:
            raise Broken(f"acknowledged and lost: {each.version.ref}\n{world.story()}")
    if any(len(numbers) > 1 for numbers in told.versions.values()) or len(set(there.values())) < len(there):
        raise Broken(f"the same content twice: {told.versions} {there}\n{world.story()}")
    events = Counter(
        fact.data["version"]
        for fact in oracle.outbox(world)
        if fact.type == "podium.version.published" and fact.key == ARTIFACT
    )
    if events != Counter(there.keys()):
        raise Broken(f"versions {sorted(there)} and events {events}\n{world.story()}")


def check_sent_once(world: World) -> None:
    """What was stored before a death is not sent again after it."""
    key, count = Counter(key for _, key in world.puts).most_common(1)[0]
    if count > 1:
        raise Broken(f"chunk {key[:12]} was sent {count} times\n{world.story()}")
