"""What is there to be pushed: the regular files of a folder, or one file, and whether they change."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from registry.content.paths import check_collisions, check_path
from registry.errors import InvalidContent

# Made by tools beside the content; nobody wants them in a version.
_JUNK_FOLDERS = {".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache"}
_JUNK_FILES = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\._.*|.*\.py[co]|\.nfs[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class FileState:
    """What changes when somebody writes to a file or puts another in its place."""

    size: int
    mtime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A regular file under the pushed folder."""

    path: str  # relative, with "/", as it will be named in the version
    source: Path  # where it lies now
    state: FileState  # as it was when it was scanned

    @property
    def size(self) -> int:
        return self.state.size


@dataclass(frozen=True, slots=True)
class Scan:
    """The files to push, sorted by path, and what was left out, in words for the user."""

    root: Path
    files: tuple[ScannedFile, ...]
    notices: tuple[str, ...] = ()
    _by_path: dict[str, ScannedFile] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_path", {file.path: file for file in self.files})

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def get(self, path: str) -> ScannedFile | None:
        return self._by_path.get(path)

    def without(self, paths: set[str], notice: str) -> Scan:
        """The same less some files, with a line that says so."""
        kept = tuple(file for file in self.files if file.path not in paths)
        return replace(self, files=kept, notices=(*self.notices, notice))


def scan(root: Path) -> Scan:
    """List a folder's files (or the one file that ``root`` is).

    Raises:
        InvalidContent: ``root`` is missing or empty, or holds a link, a device, or names that cannot be kept.
    """
    status = _status(root)
    if stat.S_ISREG(status.st_mode):
        check_path(root.name)
        return Scan(root, (ScannedFile(root.name, root, FileState.of(status)),))
    if not stat.S_ISDIR(status.st_mode):
        raise _unfit(root, str(root), status.st_mode)
    notices: list[str] = []
    files = sorted(_walk(root, "", notices), key=lambda file: file.path.encode())
    if not files:
        raise InvalidContent(
            f"There are no files in {root}.", remedy="Check the path: an empty folder makes no version."
        )
    check_collisions(file.path for file in files)
    return Scan(root, tuple(files), tuple(sorted(notices)))


def _status(root: Path) -> os.stat_result:
    try:
        # A link *to* the content is the caller's spelling of its place; only links inside it are refused.
        return root.stat()
    except FileNotFoundError:
        raise InvalidContent(f"There is nothing at {root}.", remedy="Check the path.") from None
    except OSError as error:
        raise unreadable(str(root), error) from error


def _walk(folder: Path, prefix: str, notices: list[str]) -> Iterator[ScannedFile]:
    try:
        entries = [(entry, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder)]
    except OSError as error:
        raise unreadable(prefix or str(folder), error) from error
    for entry, status in entries:
        path = prefix + entry.name
        if _is_junk(entry.name, stat.S_ISDIR(status.st_mode)):
            notices.append(f"left out {check_path(path)}: it is not part of the content")
            continue
        check_path(path)
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(Path(entry.path), path + "/", notices)
        elif stat.S_ISREG(status.st_mode):
            yield ScannedFile(path, Path(entry.path), FileState.of(status))
        else:
            raise _unfit(folder, path, status.st_mode)


def _is_junk(name: str, folder: bool) -> bool:
    return name in _JUNK_FOLDERS if folder else _JUNK_FILES.fullmatch(name) is not None


def _unfit(folder: Path, path: str, mode: int) -> InvalidContent:
    if stat.S_ISLNK(mode):
        return InvalidContent(
            f"{path} is a symbolic link, and links are not followed.",
            remedy=f"Put the file itself there, for example with: cp -rL {folder} COPY",
            path=path,
        )
    return InvalidContent(f"{path} is neither a file nor a folder.", remedy="Remove it.", path=path)


def unreadable(path: str, error: OSError) -> InvalidContent:
    """What to say of a file or folder that the system does not let be read."""
    return InvalidContent(
        f"{path} cannot be read: {error.strerror}", remedy="Check its owner and permissions.", path=path
    )
