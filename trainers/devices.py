"""Which of a machine's GPUs a run may use: by index, so that two runs do not meet on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from registry.resources import Resources

#: The variable by which CUDA is told which GPUs there are for a process.
VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(environment: Mapping[str, str], count: int) -> list[str]:
    """The GPUs that a process with that environment sees, on a machine with ``count``."""
    given = environment.get(VISIBLE)
    if given is None:
        return [str(index) for index in range(count)]
    return [name for each in given.split(",") if (name := each.strip()) and name != "-1"]


class Devices:
    """The GPUs of one worker."""

    def __init__(self, names: Sequence[str]) -> None:
        self._uses = Counter(dict.fromkeys(names, 0))

    @contextmanager
    def lease(self, demand: Resources) -> Iterator[dict[str, str]]:
        """The environment of a run that asks for so many GPUs: those that fewest others use.

        There are others only where a pipeline that holds a GPU waits for its steps. A run that asks for none
        is told nothing: it sees what its worker sees.
        """
        _, count = demand.accelerators
        taken = sorted(self._uses, key=self._uses.__getitem__)[:count]
        self._uses.update(taken)
        try:
            yield {VISIBLE: ",".join(taken)} if taken else {}
        finally:
            self._uses.subtract(taken)
