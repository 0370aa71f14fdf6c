"""The checkpoints of a run, as its task saves and loads them.

@gpu.task
def train(data: Dataset, checkpoints: Checkpoints) -> Model:
    restored = checkpoints.load()
    step, state = (restored.step, restored.read_bytes()) if restored else (0, b"")
    ...
    checkpoints.save(step, state)      # returns at once; the rest happens on another thread
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.checkpoints import TRAINING, CheckpointState, SavedCheckpoint
from registry.errors import ContentDamaged, NotFound
from registry.protocol import Registry
from trainers.checkpoints.identity import Identity, refuse_another
from trainers.checkpoints.preemption import give_way
from trainers.checkpoints.saver import Save, Saver
from trainers.patience import insist

_BYTES = "state"  # name of the file that bytes are kept in
_LAST_WORDS = 30.0  # seconds that a task which failed waits for its last checkpoint to be stored


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint as it was saved. Its digests are verified."""

    step: int  # steps that were done
    folder: Path  # yours to read; `discard` it when you have
    is_folder: bool  # False: it was saved from bytes or from one file

    @property
    def path(self) -> Path:
        """What was saved: the folder, or the one file."""
        return self.folder if self.is_folder else next(self.folder.iterdir())

    def read_bytes(self) -> bytes:
        """What was saved from bytes or from one file."""
        return self.path.read_bytes()

    def discard(self) -> None:
        """Remove the files; the checkpoint stays in the store."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Checkpoints:
    """One series of checkpoints of a run. They belong to the run: its next attempt finds them.

    ``keep`` is how many of the newest stay. ``folder`` is scratch space on this machine.
    """

    def __init__(
        self,
        registry: Registry,
        run: str,
        folder: Path,
        *,
        series: str = TRAINING,
        keep: int = 2,
        say: Callable[[str], None] = print,
    ) -> None:
        self.run = run
        self.series = series
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._registry = registry
        self._keep = keep
        self._say = say
        self._saver = Saver(say)
        self._others: list[Checkpoints] = []

    def named(self, series: str, *, keep: int | None = None) -> Checkpoints:
        """Another series of the same run, for a task with several trainings."""
        keep = keep or self._keep
        other = Checkpoints(self._registry, self.run, self.folder, series=series, keep=keep, say=self._say)
        self._others.append(other)
        return other

    # Saving

    def save(
        self,
        step: int,
        state: bytes | str | os.PathLike[str],
        *,
        model: Identity | None = None,
        settled: bool = False,
    ) -> None:
        """Save bytes, a file or a folder as the state after ``step`` steps, in the background.

        A file or folder may be changed when this returns: it has been copied. ``settled`` says that nobody
        will write to its files again (they may be removed), so that linking is enough. ``model`` is what it
        is a state of.

        Raises:
            StaleAuthority: another attempt carries the run out now. Errors of earlier saves come up here as
                well; that a store or database cannot be reached is none, it is tried again.
        """

        def write(folder: Path) -> None:
            if isinstance(state, bytes):
                (folder / _BYTES).write_bytes(state)
            else:
                _take(Path(state), folder, os.link if settled else shutil.copy2)

        folder = self._new_folder(step)
        write(folder)
        is_folder = not isinstance(state, bytes) and Path(state).is_dir()
        self._put(step, folder, lambda: None, is_folder, model)

    def save_soon(self, step: int, write: Callable[[Path], None], *, model: Identity | None = None) -> None:
        """`save` what ``write`` puts into the folder that it is given; it is called on another thread."""
        folder = self._new_folder(step)
        self._put(step, folder, lambda: write(folder), True, model)

    def _new_folder(self, step: int) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{self.series}-{step}-", dir=self.folder))

    def _put(
        self, step: int, folder: Path, write: Callable[[], None], is_folder: bool, model: Identity | None
    ) -> None:
        metadata: dict[str, Any] = {"folder": is_folder, **(model.to_metadata() if model else {})}

        def carry_out() -> None:
            write()
            self._registry.checkpoints.save(
                self.run, step, folder, series=self.series, keep=self._keep, metadata=metadata
            )
            self._say(f"checkpoint at step {step} saved")

        self._saver.put(Save(step, carry_out, lambda: shutil.rmtree(folder, ignore_errors=True)))

    def check(self) -> None:
        """Raise what a save in the background failed with, such as that the run is another's now."""
        self._saver.check()

    def flush(self) -> None:
        """Wait until all that was given to `save` is stored."""
        self._saver.flush()

    def hand_back(self) -> None:
        """Store what was saved, and end this attempt: the run goes on where this one stopped.

        Raises:
            Interrupted: always.
        """
        self.flush()
        give_way("stopped as asked; its state is saved")

    def close(self, *, failed: bool = False) -> None:
        """Stop saving. What a task that ``failed`` saved last is stored first, if that does not take long."""
        for each in (*self._others, self):
            try:
                if failed:
                    each._saver.flush(_LAST_WORDS)
            except Exception as error:
                self._say(f"WARNING: the last checkpoint is not saved: {error}")
            each._saver.close()

    # Loading

    def load(self, *, model: Identity | None = None) -> Restored | None:
        """The newest checkpoint that is whole; None where the run has none.

        One that is damaged is passed over with a warning, and is not counted among those that are kept. With
        ``model``, one that is the state of another model is refused.

        Raises:
            InvalidInput: the newest is of another model.
        """
        passed_over = 0
        for saved in insist(lambda: self._registry.checkpoints.of(self.run, self.series)):
            if saved.state is CheckpointState.DAMAGED:
                continue
            if model is not None:
                refuse_another(saved, model)
            restored = self._fetch(saved)
            if restored is not None:
                self._say(f"goes on after step {restored.step}, saved by attempt {saved.attempt}")
                return restored
            passed_over += 1
        if passed_over:
            self._say("WARNING: no checkpoint of the run can be read; it begins anew")
        return None

    def _fetch(self, saved: SavedCheckpoint) -> Restored | None:
        folder = self._new_folder(saved.step)
        try:
            insist(lambda: self._registry.catalog.materialise(saved.digest, folder))
        except (ContentDamaged, NotFound) as error:
            shutil.rmtree(folder, ignore_errors=True)
            reason = error.message
            self._say(f"WARNING: the checkpoint at step {saved.step} is damaged and passed over: {reason}")
            insist(lambda: self._registry.checkpoints.mark_damaged(saved, reason))
            return None
        return Restored(saved.step, folder, bool(saved.metadata.get("folder", True)))


def _take(source: Path, folder: Path, copy: Callable[[str, str], Any]) -> None:
    """Put a file, or what is in a folder, into ``folder``, by ``copy``."""

    def one(from_: str, to: str) -> None:
        try:
            copy(from_, to)
        except OSError:
            if copy is not os.link:
                raise
            shutil.copy2(from_, to)  # links do not reach from one file system to another

    if source.is_dir():
        shutil.copytree(source, folder, copy_function=one, dirs_exist_ok=True, symlinks=True)
    else:
        one(str(source), str(folder / source.name))
