"""Where a SQLite database may lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.database.engine import Database
from registry.database.filesystem import (
    NETWORK_FILE_SYSTEMS,
    file_system_of,
    mounts,
    refuse_network_file_system,
)
from registry.errors import DatabaseUnavailable

TABLE = [("/", "ext4"), ("/home", "nfs4"), ("/home/ada/local", "xfs"), ("/data", "ext4"), ("/data", "cifs")]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/podium.db", "ext4"),
        ("/home/ada/podium.db", "nfs4"),
        ("/homes/podium.db", "ext4"),
        ("/home/ada/local/podium.db", "xfs"),
        ("/data/podium.db", "cifs"),
    ],
)
def test_the_innermost_and_newest_mount_counts(path: str, kind: str) -> None:
    assert file_system_of(Path(path), TABLE) == kind


def test_a_database_on_a_network_file_system_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        DatabaseUnavailable, match=r"/home/ada/podium\.db lies on a network file system \(nfs4\)"
    ) as refusal:
        refuse_network_file_system(Path("/home/ada/podium.db"), TABLE)
    assert "PODIUM_URL" in refusal.value.remedy
    refuse_network_file_system(Path("/home/ada/local/podium.db"), TABLE)


def test_nothing_is_made_where_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "registry.database.filesystem.mounts", lambda: [("/", "ext4"), (str(tmp_path), "nfs")]
    )
    with pytest.raises(DatabaseUnavailable):
        Database(f"sqlite:///{tmp_path}/home/podium.db")
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "near").symlink_to(far)
    table = [("/", "ext4"), (str(far), "nfs")]
    assert file_system_of(tmp_path / "near" / "podium.db", table) in NETWORK_FILE_SYSTEMS


def test_this_machine_tells_its_mounts() -> None:
    assert file_system_of(Path("/"), mounts()) is not None
