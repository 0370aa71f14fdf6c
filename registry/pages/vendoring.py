"""Fetches the pages' JavaScript libraries from npm again: ``python -m registry.pages.vendoring``.

They lie in the tree, with their licences, so that neither a user nor a browser ever asks another host for
them. To take a newer one, change its line here, run this, and look at the pages.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).parent / "static" / "vendor"


@dataclass(frozen=True, slots=True)
class Library:
    """A package of npm, and the one file of it that the pages load."""

    package: str
    version: str
    file: str  # inside the package
    name: str  # in `VENDOR`
    notices: tuple[str, ...] = ("LICENSE",)  # what must go with it


LIBRARIES = (
    Library("htmx.org", "2.0.11", "dist/htmx.min.js", "htmx.min.js"),
    Library(
        "@dagrejs/dagre",
        "3.1.3",
        "dist/dagre.min.js",
        "dagre.min.js",
        ("LICENSE", "dist/dagre.min.js.LEGAL.txt"),
    ),
    Library("uplot", "1.6.32", "dist/uPlot.iife.min.js", "uplot.min.js"),
    Library("uplot", "1.6.32", "dist/uPlot.min.css", "uplot.min.css"),
)


def fetch(library: Library, folder: Path) -> None:
    """Write the library and its notices into ``folder``; npm checks the package's integrity."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["npm", "pack", "--silent", f"{library.package}@{library.version}"]
        subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as opened:
            _copy(opened, library.file, folder / library.name)
            for notice in library.notices:
                _copy(opened, notice, folder / f"{library.name}.{Path(notice).stem.rpartition('.')[2]}")


def _copy(archive: tarfile.TarFile, member: str, to: Path) -> None:
    source = archive.extractfile(f"package/{member}")
    assert source is not None
    with source, to.open("wb") as target:
        shutil.copyfileobj(source, target)


def main() -> None:
    VENDOR.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        fetch(library, VENDOR)
        print(f"{library.package} {library.version}")


if __name__ == "__main__":
    main()
