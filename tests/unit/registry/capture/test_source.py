"""Where code came from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from registry.capture import describe_source
from registry.capture.secrets import REMOVED
from registry.capture.source import LARGEST_DIFF, without_secret_files


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    done = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    """A repository with one commit of two files."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("rank = 8\n")
    (tmp_path / "prod.env").write_text("PLAIN=1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_tree_is_its_commit(work_tree: Path) -> None:
    described = describe_source(work_tree)
    assert described["commit"] == git(work_tree, "rev-parse", "HEAD")
    assert (described["branch"], described["dirty"], described["diff"]) == ("main", False, "")


def test_a_change_is_in_the_diff(work_tree: Path) -> None:
    (work_tree / "train.py").write_text("rank = 16\n")
    described = describe_source(work_tree)
    assert described["dirty"]
    assert "-rank = 8\n+rank = 16" in described["diff"]


def test_a_staged_change_is_in_the_diff(work_tree: Path) -> None:
    (work_tree / "train.py").write_text("rank = 32\n")
    git(work_tree, "add", "train.py")
    assert "+rank = 32" in describe_source(work_tree)["diff"]


def test_secrets_do_not_get_into_the_description(work_tree: Path) -> None:
    token = "hf" + "_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"
    (work_tree / "train.py").write_text(f"rank = 8\nlogin('{token}')\npassword = 'hunter2'\n")
    (work_tree / "prod.env").write_text("PLAIN=nobody-would-guess\n")
    git(work_tree, "remote", "add", "origin", "https://ada:hunter2@git.example/podium.git")
    text = str(describe_source(work_tree))
    assert not [secret for secret in (token, "hunter2", "nobody-would-guess") if secret in text]
    assert "git.example/podium.git" in text


def test_a_renamed_file_for_secrets_stays_out_too(work_tree: Path) -> None:
    (work_tree / "prod.env").write_text("".join(f"LINE{n}=value\n" for n in range(20)))
    git(work_tree, "commit", "-qam", "second")
    git(work_tree, "mv", "prod.env", "prod.txt")
    (work_tree / "prod.txt").write_text((work_tree / "prod.txt").read_text() + "LAST=nobody-would-guess\n")
    assert "nobody-would-guess" not in describe_source(work_tree)["diff"]


@pytest.mark.parametrize(
    "heading", ["a/x/.env b/x/.env", "a/my dir/.env b/my dir/.env", '"a/\\303\\244/.env" "b/\\303\\244/.env"']
)
def test_the_diff_of_a_file_for_secrets_keeps_only_its_heading(heading: str) -> None:
    secret = f"diff --git {heading}\n--- x\n+++ y\n+WORD=abc\n"
    plain = "diff --git a/train.py b/train.py\n+rank = 16\n"
    assert without_secret_files(secret + plain) == f"diff --git {heading}\n{REMOVED}\n{plain}"


def test_untracked_files_are_named_and_ignored_ones_are_not(work_tree: Path) -> None:
    (work_tree / ".gitignore").write_text("*.log\n")
    (work_tree / "new.py").write_text("")
    (work_tree / "run.log").write_text("")
    assert describe_source(work_tree)["untracked"] == [".gitignore", "new.py"]


def test_a_long_diff_is_cut_and_says_so(work_tree: Path) -> None:
    (work_tree / "train.py").write_text("x = 1\n" * 300_000)
    diff = describe_source(work_tree)["diff"]
    assert len(diff) < LARGEST_DIFF + 100
    assert "characters are not kept" in diff


def test_outside_of_git_there_is_nothing_to_describe(tmp_path: Path) -> None:
    assert describe_source(tmp_path) == {}


def test_a_repository_without_a_commit_has_nothing_to_describe(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert describe_source(tmp_path) == {}
