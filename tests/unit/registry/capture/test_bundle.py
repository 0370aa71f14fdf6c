"""The code that travels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from registry.capture import Bundle, make_bundle
from registry.capture import bundle as bundling
from registry.errors import InvalidInput


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git work tree with a file that imports three modules."""
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "train.py").write_text("import helper\nimport generated\nimport secrets_of_mine.credentials\n")
    (root / "helper.py").write_text("RANK = 16\n")
    (root / "generated.py").write_text("")
    (root / ".gitignore").write_text("generated.py\n")
    (root / "secrets_of_mine").mkdir()
    (root / "secrets_of_mine" / "credentials.py").write_text("WORD = 'x'\n")
    return root


def contents(bundle: Bundle) -> dict[str, bytes]:
    files = (file for file in sorted(bundle.folder.rglob("*")) if file.is_file())
    return {file.relative_to(bundle.folder).as_posix(): file.read_bytes() for file in files}


def test_a_bundle_is_the_file_and_what_it_imports(project: Path, tmp_path: Path) -> None:
    bundle = make_bundle(project / "train.py", tmp_path / "out")
    assert bundle.entry == "train.py"
    assert bundle.files == ("helper.py", "train.py")
    assert set(contents(bundle)) == {"helper.py", "train.py"}


def test_what_git_ignores_and_files_for_secrets_stay_behind_with_a_notice(
    project: Path, tmp_path: Path
) -> None:
    bundle = make_bundle(project / "train.py", tmp_path / "out")
    assert bundle.notices == (
        "generated.py stays behind: git ignores it.",
        "secrets_of_mine/credentials.py stays behind: its name is one for secrets.",
    )


def test_an_ignored_file_that_git_tracks_travels(project: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "-C", str(project), "add", "-f", "generated.py"], check=True)
    assert "generated.py" in make_bundle(project / "train.py", tmp_path / "out").files


def test_the_same_code_gives_the_same_bytes(project: Path, tmp_path: Path) -> None:
    first = make_bundle(project / "train.py", tmp_path / "first")
    (project / "unrelated.py").write_text("")
    (project / "helper.py").touch()
    assert contents(make_bundle(project / "train.py", tmp_path / "second")) == contents(first)


def test_a_token_in_the_code_is_refused_with_its_line_and_not_repeated(project: Path, tmp_path: Path) -> None:
    token = "hf" + "_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"
    (project / "helper.py").write_text(f"RANK = 16\nTOKEN = '{token}'\n")
    with pytest.raises(InvalidInput, match=r"helper\.py:2 .*Hugging Face token") as refused:
        make_bundle(project / "train.py", tmp_path / "out")
    assert token not in str(refused.value) + refused.value.remedy


def test_a_refused_bundle_leaves_nothing(project: Path, tmp_path: Path) -> None:
    (project / "train.py").write_text("import helper\nKEY = 'AKIA" + "IOSFODNN7EXAMPLE'\n")
    with pytest.raises(InvalidInput):
        make_bundle(project / "train.py", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_much_code_is_refused_and_the_largest_file_named(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundling, "LARGEST_BUNDLE", 2000)
    (project / "helper.py").write_text("#" * 3000)
    with pytest.raises(InvalidInput) as refused:
        make_bundle(project / "train.py", tmp_path / "out")
    assert "helper.py" in refused.value.remedy


@pytest.mark.parametrize("name", ["missing.py", "generated.py", "secrets_of_mine/credentials.py"])
def test_a_file_that_is_missing_or_must_stay_behind_cannot_be_the_one_to_run(
    project: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidInput, match=name):
        make_bundle(project / name, tmp_path / "out")


def test_outside_of_git_nothing_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("")
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert make_bundle(tmp_path / "train.py", tmp_path / "out").files == ("helper.py", "train.py")
