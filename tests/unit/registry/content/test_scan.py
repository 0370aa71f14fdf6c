from __future__ import annotations

import os
from pathlib import Path

import pytest

from registry.content.scan import scan
from registry.errors import InvalidContent
from tests.common.content import write_dataset


def test_a_folder_gives_its_files_sorted_by_path_with_sizes(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"b.txt": b"12", "a/z.txt": b"1", "a.txt": b""})
    found = scan(tmp_path)
    assert [(file.path, file.size) for file in found.files] == [("a.txt", 0), ("a/z.txt", 1), ("b.txt", 2)]
    assert found.size == 3
    assert found.notices == ()


def test_a_single_file_is_content_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(b"{}")
    assert [file.path for file in scan(tmp_path / "data.jsonl").files] == ["data.jsonl"]


def test_what_tools_leave_in_a_folder_is_left_out_and_said(tmp_path: Path) -> None:
    junk = {".git/config": b"x", "a/__pycache__/m.pyc": b"x", ".DS_Store": b"x", "._data": b"x"}
    write_dataset(tmp_path, {"data.txt": b"x", **junk})
    found = scan(tmp_path)
    assert [file.path for file in found.files] == ["data.txt"]
    assert sorted(notice.split(":")[0] for notice in found.notices) == [
        "left out .DS_Store",
        "left out ._data",
        "left out .git",
        "left out a/__pycache__",
    ]


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match="nothing at"):
        scan(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    with pytest.raises(InvalidContent, match="no files in"):
        scan(tmp_path / "empty")


def test_a_folder_of_nothing_but_junk_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {".git/config": b"x"})
    with pytest.raises(InvalidContent, match="no files in"):
        scan(tmp_path)


@pytest.mark.parametrize("target", ["inside.txt", "/etc/passwd", "nowhere"])
def test_a_symlink_inside_is_refused_wherever_it_points(tmp_path: Path, target: str) -> None:
    write_dataset(tmp_path, {"inside.txt": b"x"})
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InvalidContent, match="link is a symbolic link") as raised:
        scan(tmp_path)
    assert "cp -rL" in raised.value.remedy


def test_a_symlink_to_a_folder_inside_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"data/inside.txt": b"x"})
    (tmp_path / "more").symlink_to(tmp_path / "data")
    with pytest.raises(InvalidContent, match="more is a symbolic link"):
        scan(tmp_path)


def test_a_link_to_the_content_itself_is_the_callers_way_to_name_it(tmp_path: Path) -> None:
    write_dataset(tmp_path / "run-7", {"data.txt": b"x"})
    (tmp_path / "latest").symlink_to("run-7")
    assert [file.path for file in scan(tmp_path / "latest").files] == ["data.txt"]


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidContent, match="pipe is neither a file nor a folder"):
        scan(tmp_path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Data.txt", "data.txt"),
        ("stra\u00dfe", "STRASSE"),
        ("caf\u00e9.txt", "cafe\u0301.txt"),
        ("A/x.txt", "a/y.txt"),
        ("a", "A/x.txt"),
    ],
)
def test_names_that_are_one_name_when_folded_are_refused(tmp_path: Path, one: str, other: str) -> None:
    write_dataset(tmp_path, {one: b"x", other: b"y"})
    with pytest.raises(InvalidContent, match="the same where case or Unicode form is ignored"):
        scan(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt")).write_bytes(b"x")
    with pytest.raises(InvalidContent, match="not valid UTF-8"):
        scan(tmp_path)


@pytest.mark.parametrize("name", ["line\nbreak", "bell\x07", "del\x7f", "c1\x85"])
def test_a_name_with_a_control_character_is_refused(tmp_path: Path, name: str) -> None:
    write_dataset(tmp_path, {name: b"x"})
    with pytest.raises(InvalidContent, match="control character"):
        scan(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"secret/data.txt": b"x"})
    (tmp_path / "secret").chmod(0)
    with pytest.raises(InvalidContent, match="cannot be read"):
        scan(tmp_path)
