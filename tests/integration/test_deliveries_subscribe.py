"""`podium subscribe FILE`: handlers of a file that was not deployed, with a durable place of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from registry.store.stored import StoredRegistry
from tests.common.loops import eventually
from tests.common.outbox import emit_promotion, open_registry
from triggers.service import run_events

pytestmark = pytest.mark.integration

PODIUM = str(Path(sys.executable).with_name("podium"))


@contextmanager
def subscribed(registry: StoredRegistry, file: Path) -> Iterator[Path]:
    """`podium subscribe` runs; gives the file of what it printed."""
    log = file.with_suffix(".log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [PODIUM, "subscribe", str(file)],
            env={**os.environ, "PODIUM_HOME": str(registry.settings.home)},
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()


def test_it_handles_what_comes_also_what_came_while_it_did_not_run(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    file = tmp_path / "watch.py"
    file.write_text(
        "from triggers import OnPromotion, subscribe\n"
        "@subscribe(OnPromotion('bot'))\ndef note(event, context):\n"
        f"    open({str(seen)!r}, 'a').write(f'{{event.data.to_version}} ')\n"
    )
    registry = open_registry(tmp_path / "home")

    def versions() -> list[str]:
        return seen.read_text().split() if seen.exists() else []

    async def scenario() -> None:
        stop = asyncio.Event()
        serving = asyncio.create_task(run_events(registry, stop, lambda line, **_: None))
        emit_promotion(registry, "bot", 1)
        with subscribed(registry, file) as log:
            await eventually(lambda: "1 served from" in log.read_text(), 40)
            emit_promotion(registry, "bot", 2)
            emit_promotion(registry, "other", 3)
            await eventually(lambda: versions() == ["2"])
        emit_promotion(registry, "bot", 4)
        with subscribed(registry, file):
            await eventually(lambda: versions() == ["2", "4"], 40)
        stop.set()
        await serving

    asyncio.run(scenario())
    registry.close()
