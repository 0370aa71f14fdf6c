"""From the journal to a call and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from registry import Adapter, Artifact, Dataset, Model, Registry
from registry.capture import secrets
from registry.errors import InvalidContent, InvalidInput, KindMismatch
from registry.runs import Run, RunRequest
from registry.values import Parent, Role
from tests.common import content
from tests.common.registries import Maker
from trainers.binding import bind, store_result
from trainers.errors import InvalidResult
from trainers.tasks import Task

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


def train(base: Model, data: Dataset, rank: int = 8) -> Adapter: ...


def judge(subject: Adapter, data: Dataset, base: Model | None = None) -> int: ...


def queue(registry: Registry, inputs: dict[str, str], **arguments: Any) -> Run:
    return registry.runs.queue(RunRequest("train", arguments, inputs))


def test_inputs_arrive_as_their_class_with_their_files(
    registry: Registry, make: Maker, tmp_path: Path
) -> None:
    make.model("tiny")
    make.dataset("tickets")
    run = queue(registry, {"base": "tiny", "data": "tickets"}, rank="16")
    bound = bind(Task(train), run, registry, tmp_path / "inputs")
    assert (type(bound["base"]), bound["base"].ref, bound["rank"]) == (Model, "tiny:v1", 16)
    assert not (tmp_path / "inputs").exists()
    assert (bound["base"] / "config.json").is_file()
    assert [path.name for path in (tmp_path / "inputs").iterdir()] == ["base"]


@pytest.mark.parametrize(
    ("inputs", "arguments", "error"),
    [
        ({"base": "tiny"}, {}, InvalidInput),
        ({"base": "tickets", "data": "tickets"}, {}, KindMismatch),
        ({"base": "tiny", "data": "tickets", "more": "tiny"}, {}, InvalidInput),
        ({"base": "tiny", "data": "tickets"}, {"rank": "many"}, InvalidInput),
    ],
)
def test_what_a_trigger_asked_for_by_name_is_checked_before_the_call(
    registry: Registry,
    make: Maker,
    tmp_path: Path,
    inputs: dict[str, str],
    arguments: dict[str, str],
    error: type[Exception],
) -> None:
    make.model("tiny")
    make.dataset("tickets")
    with pytest.raises(error):
        bind(Task(train), queue(registry, inputs, **arguments), registry, tmp_path / "inputs")


def test_a_judge_that_was_given_no_base_gets_that_of_its_subject(
    registry: Registry, make: Maker, tmp_path: Path
) -> None:
    make.model("tiny")
    make.adapter("router", parents=[Parent("tiny:v1", Role.BASE)])
    make.dataset("tickets")
    task = Task(judge, roles={"subject": Role.SUBJECT})
    run = queue(registry, {"subject": "router:v1", "data": "tickets:v1"})
    assert bind(task, run, registry, tmp_path / "inputs")["base"].ref == "tiny:v1"


def returning(annotation: Any) -> Task[..., Any]:
    def task() -> Any: ...

    task.__annotations__["return"] = annotation
    return Task(task)


def store(registry: Registry, annotation: Any, returned: Any) -> Any:
    return store_result(returning(annotation), returned, registry, lambda _: None)


@pytest.mark.parametrize(
    ("annotation", "returned"),
    [
        (Adapter, None),
        (Adapter, 3),
        (Adapter, Model("x")),
        (Adapter, "folder"),
        (Artifact, Artifact("x")),
    ],
)
def test_a_task_that_returns_what_it_does_not_say_has_failed(
    registry: Registry, annotation: Any, returned: Any
) -> None:
    with pytest.raises(InvalidResult):
        store(registry, annotation, returned)


@pytest.mark.parametrize("value", [None, 3, 0.5, "text", [1, 2], {"loss": [0.5]}, True])
def test_a_plain_value_is_kept_as_it_is(registry: Registry, value: Any) -> None:
    assert store(registry, Any, value).result == value


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: 1])
def test_a_value_that_cannot_be_recorded_is_refused(registry: Registry, value: Any) -> None:
    with pytest.raises(InvalidInput):
        store(registry, Any, value)


def test_several_artifacts_are_outputs_by_name(registry: Registry, tmp_path: Path) -> None:
    first = content.write_dataset(tmp_path / "a", {"a.txt": b"a"})
    second = content.write_dataset(tmp_path / "b", {"b.txt": b"b"})
    outcome = store(registry, dict, {"train": Dataset(first), "held": Dataset(second), "n": 3})
    assert [output.name for output in outcome.outputs] == ["train", "held"]
    pair = store(registry, tuple, (Dataset(first), Dataset(second)))
    assert [output.name for output in pair.outputs] == ["0", "1"]


def test_an_input_that_is_handed_on_is_not_stored_again(
    registry: Registry, make: Maker, tmp_path: Path
) -> None:
    tickets = make.dataset("tickets")
    make.model("tiny")
    run = queue(registry, {"base": "tiny", "data": "tickets"})
    data = bind(Task(train), run, registry, tmp_path / "inputs")["data"]
    (output,) = store(registry, Dataset, data).outputs
    assert output.digest == tickets.digest
    assert not (tmp_path / "inputs").exists()


def test_what_was_left_out_of_a_result_is_said(registry: Registry, tmp_path: Path) -> None:
    content.write_adapter(tmp_path / "adapter")
    (tmp_path / "adapter" / "training_args.bin").write_bytes(b"\x80\x04}.")
    said: list[str] = []
    say: Callable[[str], None] = said.append
    store_result(returning(Adapter), Adapter(tmp_path / "adapter"), registry, say)
    assert any("training_args.bin" in line for line in said)


def test_a_plain_result_that_is_not_what_the_task_says_is_refused(registry: Registry) -> None:
    def count() -> int: ...

    with pytest.raises(InvalidResult, match="'count' returned str"):
        store_result(Task(count), "many", registry, print)
    assert store_result(Task(count), 3, registry, print).result == 3


def test_a_file_with_a_secret_of_the_task_is_not_stored(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_hidden", set())
    secrets.hide(["correct horse", "abc"])
    folder = tmp_path / "made"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "notes.txt").write_text("abc is too short to say; correct horse is not")
    with pytest.raises(InvalidContent, match=r"'in/notes.txt' has a secret") as refused:
        store_result(returning(Dataset), Dataset(folder), registry, print)
    assert "horse" not in str(refused.value)
    (folder / "in" / "notes.txt").write_text("abc alone")
    assert store_result(returning(Dataset), Dataset(folder), registry, print).outputs
