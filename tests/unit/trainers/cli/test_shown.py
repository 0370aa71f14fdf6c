"""What is said of a run beside its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import RESULT, NewOutput, RunRequest
from tests.common import content
from tests.common.registries import Place
from trainers.cli.shown import how_to_name


@pytest.fixture
def registry(sqlite_place: Place) -> Registry:
    return sqlite_place.open()


@pytest.mark.parametrize(
    ("output", "publish", "hint"),
    [
        (RESULT, None, "podium publish {run} NAME"),
        ("adapter", None, "podium publish {run} NAME --output adapter"),
        (RESULT, "bot", ""),
    ],
)
def test_what_a_run_left_without_a_name_is_followed_by_how_to_name_it(
    registry: Registry, tmp_path: Path, output: str, publish: str | None, hint: str
) -> None:
    queued = registry.runs.queue(RunRequest("train", publish=publish))
    room = Resources(cpu=8, memory="8Gi")
    (claim,) = registry.runs.claim("worker", free=room, total=room, only=queued.id)
    stored = registry.catalog.store(content.write_adapter(tmp_path / "adapter"), "adapter")
    made = NewOutput(output, "adapter", stored.digest)
    ended = registry.acting(claim.origin).runs.finish(queued.id, [made])
    said = how_to_name(ended)
    assert said.endswith(hint.format(run=queued.id)) and bool(said) is bool(hint)
