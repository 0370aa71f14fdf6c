"""What a task may be asked to have and cannot be given: refused when its file is read, by name."""

from __future__ import annotations

from typing import Any

from trainers.errors import NotOffered

#: option -> (what it would mean, what to do in its place)
_INSTEAD = {
    "interruptible": (
        "that says which machines may be taken away",
        "Leave it out: a task on any worker is handed back when that is stopped, goes on at its checkpoint, "
        "and spends no retry. To choose between machines give them pools: 'podium worker --pool spot', and "
        'TaskEnvironment(..., pool="spot").',
    ),
    "depends_on": (
        "of which packages and bundles its workers would be made",
        "Leave it out: a task's code travels with the modules that it imports, and packages are installed "
        "where the worker runs. Give workers with other packages a pool of their own.",
    ),
}


def check_offered(**options: Any) -> None:
    """Raise `NotOffered` if one of ``options`` is asked for."""
    for name, asked in options.items():
        if asked:
            meaning, remedy = _INSTEAD[name]
            raise NotOffered(f"There is no '{name}', {meaning}.", remedy=remedy)
