"""Artifacts as a task's parameters and results.

    @gpu.task
    def train(base: Model, data: Dataset, rank: int = 16) -> Adapter:
        folder = Path("adapter")
        model = AutoModelForCausalLM.from_pretrained(base)  # content is fetched here, when it is touched
        ...
        return Adapter(folder)                               # content is stored when the task returns

Each is a path (``os.PathLike``). What came in knows its reference and digest; what a task makes is a folder
or file with the kind that its class says.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from registry.errors import InvalidInput
from registry.values import Parent

__all__ = [
    "Adapter",
    "Artifact",
    "Checkpoint",
    "Dataset",
    "Dir",
    "File",
    "Model",
    "Report",
    "StoredContent",
]


@dataclass(frozen=True, slots=True)
class StoredContent:
    """What an artifact that came in is, without its files."""

    value: str  # id of the value, the node of lineage
    kind: str
    digest: str  # "sha256:..."
    ref: str | None = None  # "smollm2:v1"; None for a value that no version names


class Artifact(os.PathLike[str]):
    """Files with a kind. Use the subclass of the kind; `Artifact` itself stands for any kind.

    ``Adapter(path)`` is a new result: ``parents`` are added to the lineage that the run knows by itself, and
    ``metadata`` is kept with the value. ``Model.stored(...)`` is something in the registry.
    """

    kind: ClassVar[str] = ""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        parents: Sequence[Parent] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._path: Path | None = Path(path)
        self._lock = threading.Lock()
        self._fetch: Callable[[], Path] | None = None
        self._publish: Callable[[str], str] | None = None
        self.content: StoredContent | None = None
        self.parents = tuple(parents)
        self.metadata = dict(metadata or {})

    @classmethod
    def from_path(
        cls,
        path: str | os.PathLike[str],
        *,
        parents: Sequence[Parent] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """The same as calling the class."""
        return cls(path, parents=parents, metadata=metadata)

    @classmethod
    def stored(
        cls,
        content: StoredContent,
        fetch: Callable[[], Path],
        publish: Callable[[str], str] | None = None,
    ) -> Self:
        """Something in the registry. ``fetch`` is called once, when the files are first asked for.

        ``publish`` makes it a version of the artifact that it is given the name of, and gives its reference.
        """
        made = cls(".")
        made._path, made._fetch, made._publish, made.content = None, fetch, publish, content
        return made

    def publish(self, name: str) -> str:
        """Make what a step made a version of the artifact ``name``; its reference.

        Raises:
            InvalidInput: it is not stored yet, as a task's own result is until the task has returned it.
        """
        if self._publish is None:
            raise InvalidInput(
                f"{self!r} is not stored yet.", remedy="Return it; the caller, or --publish, names it then."
            )
        return self._publish(name)

    @property
    def ref(self) -> str | None:
        """Its reference, such as ``smollm2:v1``; None for a result, or a value that nobody named."""
        return self.content.ref if self.content else None

    @property
    def digest(self) -> str | None:
        """Its content's digest; None for a result that is not stored yet."""
        return self.content.digest if self.content else None

    @property
    def value(self) -> str | None:
        """The id of its value; None for a result that is not stored yet."""
        return self.content.value if self.content else None

    @property
    def path(self) -> Path:
        """Where its files are. Fetches them when this is the first time that they are asked for."""
        with self._lock:  # two threads of a task may touch it at once; the files are fetched once
            if self._path is None:
                assert self._fetch is not None
                self._path = self._fetch()
            return self._path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)  # libraries call str() on paths, so this must be one

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self  # it does not change, and libraries copy configurations that hold the path they came from

    def __repr__(self) -> str:
        what = self.ref or self.digest or self._path
        return f"{type(self).__name__}({str(what)!r})"


class Model(Artifact):
    """Weights of a whole model with its configuration and tokenizer."""

    kind = "model"


class Dataset(Artifact):
    """Data to train or judge on."""

    kind = "dataset"


class Adapter(Artifact):
    """A PEFT adapter for a base model."""

    kind = "adapter"


class Report(Artifact):
    """What an evaluation found."""

    kind = "report"


class Checkpoint(Artifact):
    """The state of a training that is not finished."""

    kind = "checkpoint"


class Dir(Artifact):
    """A folder of anything."""

    kind = "dir"


class File(Artifact):
    """One file of any sort. What came in is a path to the file itself, under the name it was stored with."""

    kind = "file"

    @property
    def path(self) -> Path:
        found = super().path
        return next(found.iterdir()) if self.content is not None else found
