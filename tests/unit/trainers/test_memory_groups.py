"""Where groups may be made in version 2 of control groups, and what a group is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainers import memory_groups
from trainers.memory_groups import MemoryGroups


def group(folder: Path, *, delegated: bool, limit: str = "max", members: str = "") -> Path:
    """A folder that looks like a group of version 2."""
    folder.mkdir(parents=True)
    (folder / "cgroup.subtree_control").write_text("memory\n" if delegated else "cpu\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "cgroup.procs").write_text(members)
    return folder


def test_groups_are_made_below_the_workers_own_where_it_may_have_some(tmp_path: Path) -> None:
    above = group(tmp_path / "above", delegated=False)
    own = group(above / "own", delegated=True)
    # Whoever may write the parent's file may have groups there as well: here that is anybody.
    assert memory_groups._places_in_version_2(own)[0] == own


def test_a_worker_with_a_limit_of_its_own_makes_none_beside_itself(tmp_path: Path) -> None:
    above = group(tmp_path / "above", delegated=True)
    stranger = str(os.getppid())
    limited = group(above / "limited", delegated=False, limit="1000000", members=stranger)
    (limited / "cgroup.subtree_control").unlink()
    (limited / "cgroup.subtree_control").mkdir()  # nobody may write it
    assert memory_groups._places_in_version_2(limited) == []


def test_a_worker_without_a_limit_makes_them_beside_itself_where_others_live_in_its_group(
    tmp_path: Path,
) -> None:
    above = group(tmp_path / "above", delegated=True)
    own = group(above / "own", delegated=False, members=str(os.getppid()))
    (own / "cgroup.subtree_control").unlink()
    (own / "cgroup.subtree_control").mkdir()
    assert memory_groups._places_in_version_2(own) == [above]


def test_the_kernel_keeps_what_a_group_of_version_2_is_given() -> None:
    groups = memory_groups.memory_groups()
    if groups is None:
        pytest.skip("this process may make no control groups")
    if not (groups.parent / "cgroup.controllers").exists():
        pytest.skip("this machine keeps memory by control groups of version 1")
    made = MemoryGroups(groups.parent).make(64 * 2**20)
    try:
        assert (made / "memory.max").read_text().strip() == str(64 * 2**20)
        assert (made / "memory.oom.group").read_text().strip() == "1"
    finally:
        memory_groups.remove(made)
    assert not made.exists()
