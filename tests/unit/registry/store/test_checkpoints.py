"""Checkpoints of runs in the registry: whose they are, which is the last whole one, which are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import Registry
from registry.checkpoints import CheckpointState, SavedCheckpoint, surplus
from registry.errors import InvalidContent, InvalidInput, RunRefused, StaleAuthority
from registry.resources import Resources
from registry.runs import MOST_KILLS, Cause, Claim, RunState
from tests.common import content
from tests.common.registries import running

ROOM = Resources(cpu=64, memory="64Gi")


def state(folder: Path, text: str) -> Path:
    """A folder that holds some state."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(text)
    return folder


def again(registry: Registry, run: str) -> tuple[Registry, Claim]:
    """The next attempt of a run whose attempt has just ended."""
    (claim,) = registry.runs.claim("worker-2", free=ROOM, total=ROOM, only=run)
    return registry.acting(claim.origin), claim


def test_what_one_attempt_saves_the_next_one_finds(registry: Registry, tmp_path: Path) -> None:
    first, claim = running(registry, "train")
    first.checkpoints.save(claim.run.id, 10, state(tmp_path / "a", "ten"))
    first.runs.end(claim.run.id, Cause.PREEMPTED)
    second, _ = again(registry, claim.run.id)
    (found,) = second.checkpoints.of(claim.run.id)
    assert (found.step, found.attempt, found.number, found.series) == (10, 1, 1, "training")
    second.catalog.materialise(found.digest, tmp_path / "out")
    assert (tmp_path / "out" / "state.json").read_text() == "ten"
    assert second.checkpoints.save(claim.run.id, 20, state(tmp_path / "b", "twenty")).attempt == 2


def test_checkpoints_are_still_there_after_a_recover(registry: Registry, tmp_path: Path) -> None:
    acting, claim = running(registry, "train")
    acting.checkpoints.save(claim.run.id, 10, state(tmp_path / "a", "ten"))
    acting.runs.end(claim.run.id, Cause.ERROR)
    registry.runs.recover(claim.run.id)
    again(registry, claim.run.id)
    assert [each.step for each in registry.checkpoints.of(claim.run.id)] == [10]


def test_a_task_that_is_killed_at_one_place_fails_and_one_that_comes_further_does_not(
    registry: Registry, tmp_path: Path
) -> None:
    acting, claim = running(registry, "train")
    for step in range(2 * MOST_KILLS):
        acting.checkpoints.save(claim.run.id, step, state(tmp_path / str(step), str(step)))
        assert acting.runs.end(claim.run.id, Cause.KILLED).state is RunState.QUEUED
        acting, claim = again(registry, claim.run.id)
    for _ in range(MOST_KILLS - 1):  # and once already, when the last one was saved
        assert acting.runs.end(claim.run.id, Cause.KILLED).state is RunState.QUEUED
        acting, claim = again(registry, claim.run.id)
    assert acting.runs.end(claim.run.id, Cause.KILLED).state is RunState.FAILED


def test_a_stale_attempt_records_nothing(registry: Registry, tmp_path: Path) -> None:
    stale, claim = running(registry, "train")
    stale.checkpoints.save(claim.run.id, 10, state(tmp_path / "a", "ten"))
    registry.acting(claim.origin).runs.end(claim.run.id, Cause.LOST)
    fresh, _ = again(registry, claim.run.id)
    fresh.checkpoints.save(claim.run.id, 20, state(tmp_path / "b", "twenty"))
    before = registry.checkpoints.of(claim.run.id)
    with pytest.raises(StaleAuthority):
        stale.checkpoints.save(claim.run.id, 15, state(tmp_path / "c", "fifteen"))
    with pytest.raises(StaleAuthority):
        stale.checkpoints.mark_damaged(before[0], "no")
    assert registry.checkpoints.of(claim.run.id) == before


def test_nobody_but_the_run_saves_its_checkpoints(registry: Registry, tmp_path: Path) -> None:
    _, claim = running(registry, "train")
    other, _ = running(registry, "train")
    for stranger in (registry, other):
        with pytest.raises(RunRefused, match=claim.run.id):
            stranger.checkpoints.save(claim.run.id, 1, state(tmp_path / "a", "x"))
    assert registry.checkpoints.of(claim.run.id) == []


def test_the_newest_ones_are_kept(registry: Registry, tmp_path: Path) -> None:
    acting, claim = running(registry, "train")
    for step in (10, 20, 30, 40):
        acting.checkpoints.save(claim.run.id, step, state(tmp_path / "a", str(step)), keep=3)
    kept = registry.checkpoints.of(claim.run.id)
    assert [(each.number, each.step) for each in kept] == [(4, 40), (3, 30), (2, 20)]


def test_a_damaged_one_does_not_count_among_those_that_are_kept(registry: Registry, tmp_path: Path) -> None:
    acting, claim = running(registry, "train")
    run = claim.run.id
    acting.checkpoints.save(run, 10, state(tmp_path / "a", "ten"))
    acting.checkpoints.mark_damaged(acting.checkpoints.save(run, 20, state(tmp_path / "a", "twenty")), "bad")
    acting.checkpoints.save(run, 20, state(tmp_path / "a", "twenty again"))
    found = [(e.number, e.step, e.state, e.reason) for e in registry.checkpoints.of(run)]
    whole, damaged = CheckpointState.WHOLE, CheckpointState.DAMAGED
    assert found == [(3, 20, whole, ""), (2, 20, damaged, "bad"), (1, 10, whole, "")]
    acting.checkpoints.save(run, 30, state(tmp_path / "a", "thirty"))
    assert [e.number for e in registry.checkpoints.of(run)] == [4, 3]


def test_series_of_one_run_are_kept_apart(registry: Registry, tmp_path: Path) -> None:
    acting, claim = running(registry, "train")
    for series in ("first", "second"):
        for step in (10, 20):
            acting.checkpoints.save(
                claim.run.id, step, state(tmp_path / "a", f"{series} {step}"), series=series, keep=1
            )
    found = [(each.series, each.step) for each in registry.checkpoints.of(claim.run.id)]
    assert found == [("first", 20), ("second", 20)]
    assert [e.step for e in registry.checkpoints.of(claim.run.id, "second")] == [20]


def test_a_frozen_tensor_is_sent_once(registry: Registry, tmp_path: Path) -> None:
    acting, claim = running(registry, "train")
    frozen = ("BF16", (512, 1024), 1)
    sent = []
    for step in (10, 20):
        folder = tmp_path / f"at-{step}"
        content.write_model(folder, {"frozen": frozen, "learns": ("BF16", (64, 1024), step)})
        sent.append(acting.checkpoints.save(claim.run.id, step, folder).bytes_sent)
    assert sent[0] > 512 * 1024 * 2
    assert sent[1] < 64 * 1024 * 2 + 4096


def test_what_cannot_be_a_checkpoint_is_refused(registry: Registry, tmp_path: Path) -> None:
    acting, claim = running(registry, "train")
    with pytest.raises(InvalidContent):
        acting.checkpoints.save(claim.run.id, 1, tmp_path / "nothing")
    for options in ({"step": -1}, {"keep": 0}, {"series": "a\x00"}):
        with pytest.raises(InvalidInput):
            arguments = {"step": 1, **options}
            acting.checkpoints.save(claim.run.id, path=state(tmp_path / "a", "x"), **arguments)  # type: ignore[arg-type]
    assert registry.checkpoints.of(claim.run.id) == []


def saved(number: int, whole: bool) -> SavedCheckpoint:
    made = SavedCheckpoint("r", "training", number, number, "d", 1, 1, 1, datetime(2026, 1, 1, tzinfo=UTC))
    return made if whole else replace(made, state=CheckpointState.DAMAGED)


@given(st.lists(st.booleans(), max_size=8), st.integers(1, 4))
def test_retention_never_takes_one_that_could_still_be_needed(states: list[bool], keep: int) -> None:
    all_of = [saved(number, whole) for number, whole in enumerate(states, start=1)]
    gone = surplus(all_of, keep)
    left = [each for each in all_of if each not in gone]
    whole = [each for each in all_of if each.state is CheckpointState.WHOLE]
    assert [each for each in left if each.state is CheckpointState.WHOLE] == whole[-keep:]
    assert all_of[-1:] == left[-1:]  # so that numbers are not given out twice
