"""Control groups in which the kernel keeps the memory of a run's processes within its limit.

A group is made below the worker's own where that may have groups, and beside it where it may not. In version
2 that is the case for root, for a service with ``Delegate=yes`` (best with a ``DelegateSubgroup=`` for the
worker), and for what a user starts on a desktop; in version 1 for root. Where no group can be had the guard
watches the memory of the run's processes instead.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_PREFIX = "podium-"
_MEMBERS = "cgroup.procs"
_SUBTREE = "cgroup.subtree_control"


@dataclass(frozen=True, slots=True)
class MemoryGroups:
    """Where this process may make groups."""

    parent: Path

    def make(self, limit: int) -> Path:
        """A new group whose processes together may have ``limit`` bytes; what it swaps out counts, too.

        Raises:
            OSError: the kernel refuses it.
        """
        group = self.parent / f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        group.mkdir()
        try:
            if (group / "memory.max").exists():
                (group / "memory.max").write_text(str(limit))
                _set_if_there(group / "memory.swap.max", "0")
                _set_if_there(group / "memory.oom.group", "1")
            else:
                (group / "memory.limit_in_bytes").write_text(str(limit))
                _set_if_there(group / "memory.memsw.limit_in_bytes", str(limit))
        except OSError:
            remove(group)
            raise
        return group

    def sweep(self) -> None:
        """Remove the groups of workers that have died without removing them."""
        for group in self.parent.glob(f"{_PREFIX}*-*"):
            owner = group.name.split("-")[1]
            if owner.isdigit() and not psutil.pid_exists(int(owner)):
                remove(group)


@cache
def memory_groups() -> MemoryGroups | None:
    """Where this process may make groups; None where it cannot. A group has been tried out."""
    for place in _places():
        groups = MemoryGroups(place)
        try:
            _try(groups)
        except OSError:
            continue
        groups.sweep()
        return groups
    return None


def remove(group: Path | None) -> None:
    """Remove a group whose processes have ended; nothing where some live or it is gone."""
    if group is not None:
        with contextlib.suppress(OSError):
            group.rmdir()


def _try(groups: MemoryGroups) -> None:
    """Make a group and move a process there, as only that shows whether it can be done."""
    group = groups.make(64 * 2**20)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            (group / _MEMBERS).write_text(str(process.pid))
        finally:
            process.kill()
            process.wait()
            remove(group)


def _places() -> list[Path]:
    """Groups below which one may be made, the best first."""
    own = _own_groups()
    if (second := own.get("")) is not None and "memory" in _words(second / "cgroup.controllers"):
        return _places_in_version_2(second)
    return [own["memory"]] if "memory" in own else []


def _places_in_version_2(own: Path) -> list[Path]:
    """Below our own group; and beside it, unless that would be a way out of a limit of our own.

    Groups that have processes of their own may have none below them with a limit, but for the topmost.
    """
    places = [own] if _delegates(own) or _make_room(own) else []
    unlimited = (own / "memory.max").exists() and _words(own / "memory.max") == ["max"]
    return [*places, own.parent] if unlimited and _delegates(own.parent) else places


def _delegates(group: Path) -> bool:
    """Whether groups below this one can have limits of their memory."""
    if "memory" not in _words(group / _SUBTREE):
        with contextlib.suppress(OSError):
            (group / _SUBTREE).write_text("+memory")
    return "memory" in _words(group / _SUBTREE)


def _make_room(own: Path) -> bool:
    """Move this process and those below it into a group of their own, if no others are in ours."""
    here = {int(pid) for pid in _words(own / _MEMBERS)}
    ours = {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    if not here or not here <= ours:
        return False
    aside = own / "podium-worker"
    try:
        aside.mkdir(exist_ok=True)
        _move(here, aside)
        if _delegates(own):
            return True
        _move(here, own)
    except OSError:
        return False
    remove(aside)
    return False


def _move(processes: set[int], group: Path) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            (group / _MEMBERS).write_text(str(pid))


def _own_groups() -> dict[str, Path]:
    """The folder of this process's group by controller; under "" that of version 2."""
    mounted = _mounted()
    found = {}
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in mounted:
                root, folder = mounted[controller]
                below = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
                found[controller] = folder / below.strip("/")
    return found


def _mounted() -> dict[str, tuple[str, Path]]:
    """Which group is the topmost that is mounted, and where, by controller; under "" for version 2."""
    found = {}
    for line in _lines(Path("/proc/self/mountinfo")):
        mount, _, kind = line.partition(" - ")
        name, _, options = kind.split(" ", 2)
        root, folder = mount.split(" ")[3:5]
        if name == "cgroup2":
            found[""] = root, Path(folder)
        elif name == "cgroup" and "memory" in options.split(" ")[-1].split(","):
            found["memory"] = root, Path(folder)
    return found


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _set_if_there(path: Path, value: str) -> None:
    if path.exists():
        path.write_text(value)
