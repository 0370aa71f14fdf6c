"""The attempts of a run without a worker: each gets checkpoints of its own, as a task's process would."""

from __future__ import annotations

from pathlib import Path

from registry import Registry
from registry.resources import Resources
from registry.runs import Cause
from tests.common.registries import Place, running
from trainers.checkpoints.series import Checkpoints

ROOM = Resources(cpu=64, memory="64Gi")


class Attempts:
    """The attempts of one run, each with checkpoints of its own."""

    def __init__(self, place: Place, registry: Registry, folder: Path) -> None:
        self._place = place
        self._registry = registry
        self._folder = folder
        self._made: list[Checkpoints] = []
        self.said: list[str] = []
        acting, claim = running(registry, "train")
        self.run = claim.run.id
        self.acting = acting

    def begin(self, **options: int) -> Checkpoints:
        """What the attempt that runs now is given."""
        folder = self._folder / f"attempt-{len(self._made)}"
        made = Checkpoints(self.acting, self.run, folder, say=self.said.append, **options)  # type: ignore[arg-type]
        self._made.append(made)
        return made

    def next(self, cause: Cause = Cause.PREEMPTED, **options: int) -> Checkpoints:
        """What the next attempt is given, after this one has ended by ``cause``. This one may not know it."""
        self.acting.runs.end(self.run, cause)
        (claim,) = self._registry.runs.claim("worker-2", free=ROOM, total=ROOM, only=self.run)
        self.acting = self._registry.acting(claim.origin)
        return self.begin(**options)

    def damage(self, step: int, file: str = "state") -> None:
        """Change a byte of what the store has of a checkpoint, behind everybody's back."""
        digest = next(c.digest for c in self._registry.checkpoints.of(self.run) if c.step == step)
        entry = self._registry.catalog.manifest(digest).get(file)
        assert entry is not None
        (blob,) = (self._place.settings.home / "blobs").rglob(entry.chunks[-1].key)
        blob.chmod(0o644)
        blob.write_bytes(bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:])

    def close(self) -> None:
        for each in self._made:
            each.close()
