"""Finding a file's own modules by reading it."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.capture.imports import needed_files, project_root
from registry.errors import InvalidInput


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def needed(root: Path, entry: str) -> list[str]:
    return [file.relative_to(root.resolve()).as_posix() for file in needed_files(root / entry, root)]


def test_a_module_beside_the_file_is_needed(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import helper", "helper.py": "", "other.py": ""})
    assert needed(tmp_path, "train.py") == ["helper.py", "train.py"]


def test_what_a_needed_module_imports_is_needed_too(tmp_path: Path) -> None:
    write(
        tmp_path, {"train.py": "import a", "a.py": "from b import x", "b.py": "import c", "c.py": "import a"}
    )
    assert needed(tmp_path, "train.py") == ["a.py", "b.py", "c.py", "train.py"]


def test_a_package_brings_the_init_files_above_it(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "import q",
        "p/r/__init__.py": "",
        "p/r/m.py": "",
        "p/unused.py": "",
        "q.py": "",
    }
    write(tmp_path, {"train.py": "import p.r.m", **files})
    assert needed(tmp_path, "train.py") == [
        "p/__init__.py",
        "p/r/__init__.py",
        "p/r/m.py",
        "q.py",
        "train.py",
    ]


def test_a_module_named_after_from_is_needed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"train.py": "from p import m, value", "p/__init__.py": "value = 1", "p/m.py": "", "p/n.py": ""},
    )
    assert needed(tmp_path, "train.py") == ["p/__init__.py", "p/m.py", "train.py"]


def test_relative_imports_are_followed(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "",
        "p/a.py": "from . import b\nfrom .c import x\nfrom .s.d import y\n",
        "p/b.py": "",
    }
    files |= {"p/c.py": "", "p/s/__init__.py": "", "p/s/d.py": "from ..e import z", "p/e.py": ""}
    write(tmp_path, {"train.py": "import p.a", **files})
    assert needed(tmp_path, "train.py") == sorted([*files, "train.py"])


def test_an_import_inside_a_function_counts(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "def f():\n    import late\n", "late.py": ""})
    assert "late.py" in needed(tmp_path, "train.py")


def test_a_package_without_an_init_file_is_followed(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "from space.m import x", "space/m.py": ""})
    assert needed(tmp_path, "train.py") == ["space/m.py", "train.py"]


def test_the_projects_root_and_its_src_are_searched(tmp_path: Path) -> None:
    files = {
        "jobs/train.py": "import shared\nimport lib",
        "shared.py": "",
        "src/lib.py": "",
        "jobs/unused.py": "",
    }
    write(tmp_path, files)
    assert needed(tmp_path, "jobs/train.py") == ["jobs/train.py", "shared.py", "src/lib.py"]


def test_libraries_are_not_needed_files(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import json, torch, os.path\nfrom registry import errors\n"})
    assert needed(tmp_path, "train.py") == ["train.py"]


def test_podium_itself_is_not_a_needed_file(tmp_path: Path) -> None:
    """The examples lie in podium's own source, so its packages are found under their root."""
    write(
        tmp_path, {"train.py": "from registry.errors import x\nimport trainers", "trainers/__init__.py": ""}
    )
    write(tmp_path, {"registry/__init__.py": "", "registry/errors.py": ""})
    assert needed(tmp_path, "train.py") == ["train.py"]


def test_a_link_that_leads_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, {"outside.py": "", "project/train.py": "import outside"})
    (tmp_path / "project" / "outside.py").symlink_to(tmp_path / "outside.py")
    assert needed(tmp_path / "project", "train.py") == ["train.py"]


def test_a_file_that_is_not_python_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import helper", "helper.py": "x = 1\ndef broken(:\n"})
    with pytest.raises(InvalidInput, match=r"helper\.py:2"):
        needed(tmp_path, "train.py")


def test_the_root_is_the_nearest_folder_that_looks_like_a_project(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "", "sub/pyproject.toml": "", "sub/deep/train.py": ""})
    assert project_root(tmp_path / "sub" / "deep" / "train.py") == tmp_path.resolve() / "sub"
