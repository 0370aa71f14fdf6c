"""Checkpoints as a task uses them: kept in the background, found again, passed over where damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry import Registry
from registry.checkpoints import CheckpointState
from registry.errors import ContentDamaged, InvalidContent, InvalidInput, StaleAuthority, StoreUnavailable
from tests.common import content
from tests.common.attempts import Attempts
from tests.common.registries import Place
from trainers.checkpoints.identity import Identity
from trainers.checkpoints.preemption import Interrupted, Preemption, give_way
from trainers.checkpoints.saver import Save, Saver


@pytest.fixture
def place(sqlite_place: Place) -> Place:
    return sqlite_place


@pytest.fixture
def attempts(place: Place, registry: Registry, tmp_path: Path) -> Iterator[Attempts]:
    made = Attempts(place, registry, tmp_path / "work")
    yield made
    made.close()


def test_bytes_files_and_folders_come_back_as_they_were(attempts: Attempts, tmp_path: Path) -> None:
    checkpoints = attempts.begin()
    assert checkpoints.load() is None
    (tmp_path / "one.bin").write_bytes(b"one")
    (tmp_path / "many" / "deep").mkdir(parents=True)
    (tmp_path / "many" / "deep" / "a").write_bytes(b"a")
    (tmp_path / "many" / "b").write_bytes(b"b")
    states = {"bytes": b"state", "file": tmp_path / "one.bin", "folder": tmp_path / "many"}
    for series, state in states.items():
        named = checkpoints.named(series)
        named.save(7, state)
        named.flush()
    again = attempts.next()
    bytes_, file, folder = (again.named(series).load() for series in states)
    assert bytes_ and file and folder
    assert (bytes_.read_bytes(), bytes_.step) == (b"state", 7)
    assert (file.read_bytes(), file.path.name) == (b"one", "one.bin")
    assert (folder.path / "deep" / "a").read_bytes() + (folder.path / "b").read_bytes() == b"ab"
    folder.discard()
    assert not folder.folder.exists()


def test_what_is_saved_is_what_it_was_at_that_moment(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "x").write_text("then")
    checkpoints = attempts.begin()
    checkpoints.save(1, tmp_path / "state")
    (tmp_path / "state" / "x").write_text("now!")
    checkpoints.flush()
    restored = attempts.next().load()
    assert restored and (restored.path / "x").read_text() == "then"


def test_settled_files_may_be_removed_at_once(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    checkpoints = attempts.begin()
    checkpoints.save(1, tmp_path / "x", settled=True)
    (tmp_path / "x").unlink()
    checkpoints.flush()
    restored = attempts.next().load()
    assert restored and restored.read_bytes() == b"x"


def test_nothing_stays_on_this_machine_of_what_is_stored(attempts: Attempts) -> None:
    checkpoints = attempts.begin()
    for step in range(5):
        checkpoints.save(step, b"%d" % step)
    checkpoints.flush()
    assert list(checkpoints.folder.iterdir()) == []


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(registry: Registry, attempts: Attempts) -> None:
    checkpoints = attempts.begin()
    for step in (10, 20):
        checkpoints.save(step, b"at %d" % step)
        checkpoints.flush()
    attempts.damage(20)
    restored = attempts.next().load()
    assert restored and restored.step == 10 and restored.read_bytes() == b"at 10"
    (warning,) = [line for line in attempts.said if line.startswith("WARNING")]
    assert "step 20 is damaged" in warning
    newest = registry.checkpoints.of(attempts.run)[0]
    assert newest.state is CheckpointState.DAMAGED and "damaged" in newest.reason


def test_when_none_is_whole_the_run_begins_anew_and_says_so(attempts: Attempts) -> None:
    checkpoints = attempts.begin()
    checkpoints.save(10, b"at 10")
    checkpoints.flush()
    attempts.damage(10)
    assert attempts.next().load() is None
    assert attempts.said[-1].startswith("WARNING: no checkpoint")


def test_a_damaged_tensor_that_never_changes_is_sent_again(attempts: Attempts, tmp_path: Path) -> None:
    """Else each later checkpoint would rest on the same damaged chunk."""
    frozen = {"frozen": ("BF16", (512, 512), 1)}
    checkpoints = attempts.begin()
    checkpoints.save(10, content.write_model(tmp_path / "model", frozen))
    checkpoints.flush()
    attempts.damage(10, "model.safetensors")
    checkpoints = attempts.next()
    assert checkpoints.load() is None
    checkpoints.save(10, tmp_path / "model")
    checkpoints.flush()
    restored = attempts.next().load()
    assert restored and restored.step == 10


def test_a_stale_attempt_learns_that_it_is_one(registry: Registry, attempts: Attempts) -> None:
    stale = attempts.begin()
    stale.save(10, b"mine")
    stale.flush()
    fresh = attempts.next()
    stale.save(30, b"mine again")
    with pytest.raises(StaleAuthority):
        stale.flush()
    with pytest.raises(StaleAuthority):
        stale.save(40, b"and again")
    restored = fresh.load()
    assert restored and restored.step == 10
    assert [each.step for each in registry.checkpoints.of(attempts.run)] == [10]


def test_what_cannot_be_stored_is_said_in_the_trainings_thread(attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "link").symlink_to("/etc/passwd")
    checkpoints = attempts.begin()
    checkpoints.save(1, tmp_path / "state")
    with pytest.raises(InvalidContent, match="link"):
        checkpoints.flush()


def test_a_checkpoint_of_another_model_is_refused(attempts: Attempts) -> None:
    checkpoints = attempts.begin()
    checkpoints.save(10, b"x", model=Identity("one", "a Llama"))
    checkpoints.flush()
    again = attempts.next()
    with pytest.raises(InvalidInput, match=r"step 10 .* is of another model: a Llama\. This one is a Qwen"):
        again.load(model=Identity("two", "a Qwen"))
    restored = again.load(model=Identity("one", "a Llama"))
    assert restored and restored.read_bytes() == b"x"


# --- the thread that saves


class Gate:
    """A save that waits until it is let through; what became of it."""

    def __init__(self, step: int, *failures: Exception) -> None:
        self.began, self.go, self.discarded = threading.Event(), threading.Event(), threading.Event()
        self.failures = list(failures)
        self.saved = 0
        self.save = Save(step, self.carry_out, self.discarded.set)

    def carry_out(self) -> None:
        self.began.set()
        assert self.go.wait(20)
        if self.failures:
            raise self.failures.pop(0)
        self.saved += 1


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def saver(said: list[str]) -> Iterator[Saver]:
    made = Saver(said.append)
    yield made
    made.close()


def test_the_training_never_waits_and_the_newest_is_saved(saver: Saver) -> None:
    first, second, third = (Gate(step) for step in (1, 2, 3))
    saver.put(first.save)
    assert first.began.wait(20)
    saver.put(second.save)  # returns although the first is not saved
    saver.put(third.save)
    assert second.discarded.is_set() and not second.began.is_set()
    assert not saver.flush(timeout=0.01)
    for each in (first, third):
        each.go.set()
    assert saver.flush(timeout=20)
    assert (first.saved, second.saved, third.saved) == (1, 0, 1)
    assert first.discarded.is_set() and third.discarded.is_set()


def test_a_store_that_is_away_for_a_while_costs_a_warning(saver: Saver, said: list[str]) -> None:
    save = Gate(5, StoreUnavailable("the store is away"), OSError(28, "no space left"))
    save.go.set()
    saver.put(save.save)
    saver.flush(timeout=20)
    assert save.saved == 1
    assert ["step 5 is not saved yet" in line for line in said] == [True, True]


def test_a_save_that_cannot_succeed_gives_way_to_a_newer_one(saver: Saver) -> None:
    failing = Gate(5, *[StoreUnavailable("the store is away")] * 1000)
    failing.go.set()
    saver.put(failing.save)
    assert failing.began.wait(20)
    newer = Gate(6)
    newer.go.set()
    saver.put(newer.save)
    assert saver.flush(timeout=20)
    assert (failing.saved, newer.saved) == (0, 1) and failing.discarded.is_set()


def test_after_it_is_closed_nothing_is_saved(saver: Saver) -> None:
    first, second = Gate(1), Gate(2)
    saver.put(first.save)
    assert first.began.wait(20)
    saver.put(second.save)
    saver.close()
    first.go.set()
    assert saver.flush(timeout=20)
    assert second.discarded.is_set() and not second.began.is_set()
    late = Gate(3)
    saver.put(late.save)
    assert late.discarded.is_set() and saver.flush(timeout=20)


def test_damage_in_the_background_is_no_reason_to_stop_a_training(saver: Saver, said: list[str]) -> None:
    save = Gate(5, ContentDamaged("a chunk is being collected at this moment"))
    save.go.set()
    saver.put(save.save)
    assert saver.flush(timeout=20)
    assert save.saved == 1 and len(said) == 1


# --- being asked to stop


def test_sigterm_is_held_back_until_the_state_is_saved() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Preemption() as preemption:
        assert not preemption.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.asked
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(Interrupted):
        give_way("saved")
    assert not Preemption().asked


def test_a_task_that_catches_every_exception_is_ended_all_the_same() -> None:
    assert not issubclass(Interrupted, Exception)


def test_what_a_task_forked_ends_at_once() -> None:
    program = """
import os, signal, sys
from trainers.checkpoints.preemption import Preemption
with Preemption():
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(-signal.SIGTERM), done.stderr
