"""The engine suite on the fake and on a supervised process; and what only a process can do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serving.child import Child, reason_in
from serving.deployment import VLLM
from serving.engine import Engine, Fence, Launch, Phase, RouteMap
from serving.fake_engine import FakeEngine
from serving.vllm_engine import VLLMEngine
from tests.common.engine_suite import BASE, EngineSuite, Place, ask_once, ready
from tests.common.loops import eventually
from tests.common.serving import write_base, write_lora
from tests.common.waiting import wait_until

FAKE = VLLM(module="serving.fake_vllm")


def _adapters(home: Path) -> dict[str, Path]:
    return {
        "base": write_base(home / "base"),
        "one": write_lora(home / "one", 1),
        "two": write_lora(home / "two", 2),
        "unreadable": write_lora(home / "unreadable", 3, fake={"load": "refuse"}),
    }


class TestFakeEngine(EngineSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        engine = FakeEngine(start_looks=2)
        return Place(make=lambda: engine, **_adapters(tmp_path))


@pytest.fixture
def process_place(tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "replica"

    def make() -> Engine:
        return VLLMEngine(folder, FAKE)

    yield Place(make=make, **_adapters(tmp_path))
    Child(folder).kill_all()


class TestSupervisedProcess(EngineSuite):
    @pytest.fixture
    def place(self, process_place: Place) -> Place:
        return process_place


def test_a_process_that_dies_says_why(process_place: Place, tmp_path: Path) -> None:
    async def work() -> None:
        engine = VLLMEngine(tmp_path / "replica", VLLM(module="serving.nothing_of_that_name"))
        await engine.start(Launch(BASE, process_place.base, "right"))

        async def is_dead() -> str:
            seen = await engine.observe()
            return seen.detail if seen.phase is Phase.DEAD else ""

        assert "nothing_of_that_name" in await eventually(is_dead)
        await engine.stop(0)

    asyncio.run(work())


LOGS = {
    "INFO: fine\nTraceback:\n  File x\nValueError: rank too high\n": "ValueError: rank too high",
    "(EngineCore pid=1) ERROR 11-30 20:52:16 [core.py:1] torch.OutOfMemoryError: CUDA out of memory\n"
    "(APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above.\n": (
        "torch.OutOfMemoryError: CUDA out of memory"
    ),
    "ValidationError: 1 validation error\n  Value error, max_model_len (9) is greater\n    see x": (
        "Value error, max_model_len (9) is greater"
    ),
    "Killed\n": "Killed",
    "": "it ended without a word",
}


@pytest.mark.parametrize("log", LOGS)
def test_the_reason_of_a_death_is_the_last_error_that_is_not_another_ones_echo(log: str) -> None:
    assert reason_in(log) == LOGS[log]


def test_an_engine_that_is_not_installed_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        engine = VLLMEngine(tmp_path / "replica", VLLM(module="vllm_that_is_not_there.server"))
        with pytest.raises(Exception, match="vllm_that_is_not_there is not installed"):
            await engine.start(Launch(BASE, tmp_path, "right"))

    asyncio.run(work())


def test_a_killed_process_is_seen_dead_and_started_again_on_its_port(process_place: Place) -> None:
    async def work() -> None:
        engine = process_place.make()
        await engine.start(Launch(BASE, process_place.base, "right"))
        first = await ready(engine, process_place)
        record = Child(process_place.base.parent / "replica").record
        assert record is not None and record.pid is not None
        os.kill(record.pid, signal.SIGKILL)
        assert (await eventually(lambda: _dead(engine))).phase is Phase.DEAD
        await engine.start(Launch(BASE, process_place.base, "right"))
        second = await ready(engine, process_place)
        assert second.endpoint == first.endpoint
        assert second.boot != first.boot
        await engine.stop(5)

    asyncio.run(work())


async def _dead(engine: Engine) -> object:
    seen = await engine.observe()
    return seen if seen.phase is Phase.DEAD else None


def test_a_process_that_was_started_but_not_recorded_is_found_by_its_token(process_place: Place) -> None:
    async def work() -> None:
        engine = process_place.make()
        await engine.start(Launch(BASE, process_place.base, "right"))
        await ready(engine, process_place)
        folder = process_place.base.parent / "replica"
        record = Child(folder).record
        assert record is not None
        # As a controller leaves it that is killed between starting the process and recording its number.
        text = (folder / "replica.json").read_text()
        (folder / "replica.json").write_text(text.replace(f'"pid": {record.pid}', '"pid": null'))
        other = process_place.make()
        assert (await other.observe()).phase is Phase.READY
        await other.stop(5)
        assert (await engine.observe()).phase is Phase.ABSENT, "it heeds what the other recorded"
        await engine.close()

    asyncio.run(work())


_PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
print(child.pid, flush=True)
child.wait()
"""
_SHARING = """
import time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=4096)
print(memory.name, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system keeps shared memory elsewhere")
def test_the_shared_memory_of_a_process_that_is_killed_is_given_back(tmp_path: Path) -> None:
    child = Child(tmp_path / "replica")
    child.prepare(None, "right", BASE)
    child.spawn([sys.executable, "-c", _SHARING], {})
    segment = Path("/dev/shm") / str(wait_until(child.log.read_text, 20, "it has its memory")).strip().lstrip(
        "/"
    )
    assert segment.exists()
    child.kill_all()
    assert not segment.exists()


def test_what_a_killed_process_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    """As vLLM's engine: a child without the token in its environment, which outlives its parent."""
    child = Child(tmp_path / "replica")
    child.prepare(None, "right", BASE)
    child.spawn([sys.executable, "-c", _PARENT], {})
    orphan = int(wait_until(child.log.read_text, 20, "the child has a child"))
    assert child.record is not None and child.record.pid is not None
    os.kill(child.record.pid, signal.SIGKILL)
    wait_until(lambda: not child.is_alive(), 20, "the parent is dead")
    assert psutil.pid_exists(orphan)
    with child.log.open() as reader:  # somebody who reads the log, in a session of their own
        looking = subprocess.Popen(["sleep", "600"], stdin=reader, start_new_session=True)
    try:
        Child(tmp_path / "replica").kill_all()
        wait_until(lambda: not psutil.pid_exists(orphan), 20, "the orphan is gone")
        assert looking.poll() is None
    finally:
        looking.kill()
        looking.wait()


def test_a_process_number_that_was_given_away_again_is_not_ours(tmp_path: Path) -> None:
    folder = tmp_path / "replica"
    child = Child(folder)
    child.prepare(None, "right", BASE)
    text = (folder / "replica.json").read_text()
    mine = text.replace('"pid": null', f'"pid": {os.getpid()}').replace('"created": null', '"created": 1.0')
    (folder / "replica.json").write_text(mine)
    other = Child(folder)
    assert not other.is_alive()
    other.terminate()
    other.kill_all()  # and this process is still here


def test_the_record_and_the_token_are_for_its_owner_only(tmp_path: Path) -> None:
    child = Child(tmp_path / "replica")
    record = child.prepare(None, "right", BASE)
    assert (tmp_path / "replica" / "replica.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "replica").stat().st_mode & 0o077 == 0
    assert len(record.token) >= 32


def test_secrets_of_podium_and_of_the_store_do_not_reach_the_engine(
    process_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_URL", "postgresql://ada:hunter2@db/podium")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")

    async def work() -> None:
        engine = process_place.make()
        await engine.start(Launch(BASE, process_place.base, "right"))
        record = Child(process_place.base.parent / "replica").record
        assert record is not None and record.pid is not None
        environment = psutil.Process(record.pid).environ()
        assert "hunter2" not in "".join(environment.values())
        assert environment["PYTHONPATH"].endswith("/replica/python")
        await engine.stop(5)

    asyncio.run(work())


def test_clients_reach_a_process_by_its_served_name(process_place: Place) -> None:
    async def work() -> None:
        engine = process_place.make()
        await engine.start(Launch(BASE, process_place.base, "right"))
        seen = await ready(engine, process_place)
        assert seen.endpoint is not None and seen.boot is not None
        await engine.load("story:v1", process_place.one, Fence(1, 1, 1))
        assert (await ask_once(seen.endpoint, "teller"))[0] == 503
        await engine.apply(RouteMap(Fence(1, 1, 1), {"teller": "story:v1"}, frozenset()), seen.boot)
        assert await ask_once(seen.endpoint, "teller") == (200, "story:v1")
        await engine.stop(5)

    asyncio.run(work())
