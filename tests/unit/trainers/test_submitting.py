"""The door: what is refused before anything is queued."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry import Registry
from registry.errors import (
    AliasNotFound,
    ArtifactNotFound,
    InvalidApp,
    InvalidInput,
    InvalidReference,
    KindMismatch,
    PodiumError,
)
from registry.values import Parent, Role
from tests.common.registries import Maker
from trainers.errors import TaskNotFound
from trainers.submitting import Located, locate, prepare

FILE = """
from helper import WORD
from registry import Adapter, Dataset, Model, Report
from trainers import TaskEnvironment

env = TaskEnvironment("cpu")

@env.task
def train(base: Model, data: Dataset, rank: int = 8) -> Adapter: ...

@env.task(name="weigh")
def _weigh(data: Dataset) -> int: ...

@env.task
def judge(subject: Adapter, data: Dataset, base: Model | None = None) -> Report: ...
"""

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "jobs").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    (project / "helper.py").write_text("WORD = 'hello'\n")
    (project / "unrelated.py").write_text("raise RuntimeError\n")
    (project / "jobs" / "jobs.py").write_text(FILE)
    return project / "jobs" / "jobs.py"


@pytest.fixture
def train(registry: Registry, file: Path) -> Located:
    return locate(registry, f"{file}:train")


def test_a_file_travels_with_what_it_imports_and_nothing_else(registry: Registry, train: Located) -> None:
    assert (train.name, train.task.name) == ("jobs/jobs.py:train", "train")
    assert train.code is not None
    assert [f.path for f in registry.catalog.manifest(train.code).files] == ["helper.py", "jobs/jobs.py"]


def test_a_task_is_found_by_its_own_name_too(registry: Registry, file: Path) -> None:
    assert locate(registry, f"{file}:_weigh").task.name == "weigh"
    assert locate(registry, f"{file}:weigh").task.name == "weigh"


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("{file}:nothing", TaskNotFound),
        ("{file}:WORD", TaskNotFound),
        ("{file}.gone.py:train", InvalidApp),
        ("{file}:", TaskNotFound),
        ("nothing", TaskNotFound),
    ],
)
def test_what_is_no_task_is_refused(
    registry: Registry, file: Path, target: str, error: type[PodiumError]
) -> None:
    with pytest.raises(error) as raised:
        locate(registry, target.format(file=file))
    assert raised.value.remedy


@pytest.mark.parametrize("text", ["import nothing_of_that_name\n", "def broken(:\n", "raise SystemExit(3)\n"])
def test_a_file_that_cannot_be_imported_says_where(registry: Registry, file: Path, text: str) -> None:
    file.write_text("\n" + text)
    with pytest.raises(InvalidApp, match="line 2"):
        locate(registry, f"{file}:train")


def test_code_with_a_token_in_it_does_not_travel(registry: Registry, file: Path) -> None:
    file.write_text(FILE + f"TOKEN = 'hf_{'a' * 34}'\n")
    with pytest.raises(InvalidInput, match="token"):
        locate(registry, f"{file}:train")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"base": "nothing:v1"}, ArtifactNotFound),
        ({"base": "tiny:production"}, AliasNotFound),
        ({"base": "./folder"}, InvalidReference),
        ({"base": "tickets:v1"}, KindMismatch),
        ({"rank": "many"}, InvalidInput),
        ({"hub_token": "x"}, InvalidInput),
        ({"rank": "hf_" + "a" * 34}, InvalidInput),
    ],
)
def test_a_wrong_argument_is_refused_at_the_door(
    registry: Registry, make: Maker, train: Located, changes: dict[str, str], error: type[PodiumError]
) -> None:
    make.model("tiny")
    make.dataset("tickets")
    with pytest.raises(error):
        prepare(registry, train, {"base": "tiny:v1", "data": "tickets:v1", **changes})


@pytest.mark.parametrize(("name", "error"), [("tiny", KindMismatch), ("Router", InvalidReference)])
def test_a_name_that_cannot_be_published_under_is_refused_at_the_door(
    registry: Registry, make: Maker, train: Located, name: str, error: type[PodiumError]
) -> None:
    make.model("tiny")
    make.dataset("tickets")
    with pytest.raises(error):
        prepare(registry, train, {"base": "tiny:v1", "data": "tickets:v1"}, publish=name)


def test_what_makes_no_artifact_cannot_be_published(registry: Registry, make: Maker, file: Path) -> None:
    make.dataset("tickets")
    with pytest.raises(InvalidInput, match="nothing to publish"):
        prepare(registry, locate(registry, f"{file}:weigh"), {"data": "tickets:v1"}, publish="number")


def test_a_base_that_is_not_named_is_that_of_what_is_judged(
    registry: Registry, make: Maker, file: Path
) -> None:
    base = make.model("tiny")
    make.adapter("router", parents=[Parent("tiny:v1", Role.BASE)])
    make.dataset("tickets")
    judge = locate(registry, f"{file}:judge")
    request = prepare(registry, judge, {"subject": "router:v1", "data": "tickets:v1"})
    assert request.inputs["base"] == base.value
    assert request.roles == {"subject": Role.SUBJECT, "data": Role.HELD_OUT, "base": Role.BASE}
