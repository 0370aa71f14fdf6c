"""What of the user's code a function reaches: exactly what can change its result, as far as reading tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.capture.reachable import digest_of, reached
from registry.errors import InvalidInput

MAIN = '''
"""A pipeline."""
import json
import helpers
import package.deep as deep
from helpers import clean, LIMIT as MOST
from trainers import TaskEnvironment

cpu = TaskEnvironment("cpu", resources=4)
RATE = 3
OTHER = 4

@cpu.task(cache="auto")
def prepare(source):
    """Says something."""
    return clean(source)[:MOST] * RATE + json.dumps(deep.scale(1))

@cpu.task
def train(data):
    return helpers.fit(data)

def unused():
    return OTHER
'''
HELPERS = """
LIMIT = 10
STOP = {"a"}

def clean(text):
    return [word for word in text if word not in STOP]

def fit(data):
    import package.late
    return package.late.value
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "deep.py").write_text("FACTOR = 2\ndef scale(x):\n    return x * FACTOR\n")
    (tmp_path / "package" / "late.py").write_text("value = 1\nprint('imported')\n")
    return tmp_path


def found(project: Path, name: str = "prepare") -> dict[str, str]:
    return reached(project / "main.py", name, project)


def edit(project: Path, file: str, old: str, new: str) -> None:
    text = (project / file).read_text()
    assert old in text
    (project / file).write_text(text.replace(old, new))


def test_a_function_reaches_helpers_and_constants_through_modules(project: Path) -> None:
    assert list(found(project)) == [
        *("helpers.py:LIMIT", "helpers.py:STOP", "helpers.py:clean"),
        *("main.py:RATE", "main.py:prepare", "package/deep.py:FACTOR", "package/deep.py:scale"),
    ]


def test_an_import_inside_a_function_counts_with_what_its_module_does(project: Path) -> None:
    assert {"helpers.py:fit", "package/late.py:value", "package/late.py:<module>"} <= found(
        project, "train"
    ).keys()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.py", "RATE = 3", "RATE = 30"),
        ("main.py", "[:MOST]", "[1:MOST]"),
        ("helpers.py", "LIMIT = 10", "LIMIT = 11"),
        ("helpers.py", '{"a"}', '{"b"}'),
        ("helpers.py", "not in STOP", "in STOP"),
        ("package/deep.py", "FACTOR = 2", "FACTOR = 4"),
    ],
)
def test_what_can_change_the_result_changes_the_digest(project: Path, file: str, old: str, new: str) -> None:
    before = digest_of(found(project))
    edit(project, file, old, new)
    assert digest_of(found(project)) != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.py", "OTHER = 4", "OTHER = 5"),
        ("main.py", "Says something.", "Says another thing."),
        ("main.py", "RATE = 3", "RATE   =  3  # a comment"),
        ("main.py", "resources=4", "resources=8"),
        ("main.py", '@cpu.task(cache="auto")', '@cpu.task(cache="auto", retries=3)'),
        ("helpers.py", "return package.late.value", "return 7"),
    ],
)
def test_what_cannot_change_the_result_does_not_change_the_digest(
    project: Path, file: str, old: str, new: str
) -> None:
    before = digest_of(found(project))
    edit(project, file, old, new)
    assert digest_of(found(project)) == before


def test_a_module_that_is_handed_on_whole_counts_whole(project: Path) -> None:
    edit(project, "main.py", "return helpers.fit(data)", "return data(helpers)")
    assert "helpers.py:clean" in found(project, "train")


def test_star_imports_are_followed(project: Path) -> None:
    edit(
        project, "main.py", "from helpers import clean, LIMIT as MOST", "from helpers import *\nMOST = LIMIT"
    )
    assert {"helpers.py:clean", "helpers.py:LIMIT"} <= found(project).keys()


def test_a_name_that_is_not_there_is_refused(project: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing"):
        found(project, "nothing")
