"""Where a SQLite file may lie: its locks do not hold on network file systems."""

from __future__ import annotations

from pathlib import Path

from registry.errors import DatabaseUnavailable

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.ceph",
        "fuse.cephfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb2",
        "smb3",
        "smbfs",
    }
)


def mounts() -> list[tuple[str, str]]:
    """(mount point, file system type) of every mount; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [(f[1].encode().decode("unicode_escape"), f[2]) for f in fields if len(f) > 2]


def file_system_of(path: Path, table: list[tuple[str, str]]) -> str | None:
    """The type of the file system that holds ``path``, from a mount table; None if it is not in there."""
    resolved = path.resolve()
    holding = [(len(Path(at).parts), kind) for at, kind in table if resolved.is_relative_to(at)]
    # The last mount on the same point hides the earlier ones, hence >= through enumeration order.
    return max(enumerate(holding), key=lambda item: (item[1][0], item[0]))[1][1] if holding else None


def refuse_network_file_system(path: Path, table: list[tuple[str, str]] | None = None) -> None:
    """Raise `DatabaseUnavailable` if a SQLite database may not lie at ``path``."""
    kind = file_system_of(path, mounts() if table is None else table)
    if kind in NETWORK_FILE_SYSTEMS:
        raise DatabaseUnavailable(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold.",
            remedy="Put PODIUM_HOME on a local disk, or set PODIUM_URL to a PostgreSQL database.",
            path=str(path),
            file_system=kind,
        )
