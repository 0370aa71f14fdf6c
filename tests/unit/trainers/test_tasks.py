from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from registry.artifacts import Adapter, Artifact, Dataset, Model, Report, StoredContent
from registry.errors import InvalidInput, KindMismatch
from registry.resources import Resources
from registry.values import Role
from trainers.catalogue import recipe, recipe_names
from trainers.errors import NotOffered, TaskNotFound
from trainers.parameters import options_to_mapping
from trainers.tasks import Task, TaskEnvironment

gpu = TaskEnvironment("gpu", resources=Resources(cpu=4, gpu="L4:1"), pool="gpu")


@gpu.task(retries=3, publish="router")
def train(
    base: Model,
    data: Dataset,
    *,
    lr: float = 2e-4,
    rank: int = 16,
    steps: int | None = None,
    method: Literal["lora", "full"] = "lora",
    layers: list[str] = [],  # noqa: B006
    quick: bool = False,
    output: str = "out",
    on_log: Callable[[int], None] | None = None,
) -> Adapter | Model:
    return Adapter(output)


@gpu.task
def judge(subject: Adapter | Model | str, data: Dataset, base: Model | None = None) -> Report:
    return Report("report")


def test_a_task_called_directly_is_its_function() -> None:
    assert train.__name__ == "train"
    assert repr(train(Model("a"), Dataset("b"))) == "Adapter('out')"


def test_text_becomes_what_the_annotation_says() -> None:
    request = train.request(
        {"base": "m:v1", "data": "d:v1", "lr": "1e-5", "rank": "8", "steps": "3", "quick": "true"}
        | {"layers": '["q", "v"]', "method": "full"}
    )
    assert request.arguments == {
        "lr": 1e-5,
        "rank": 8,
        "steps": 3,
        "quick": True,
        "layers": ["q", "v"],
        "method": "full",
    }
    assert request.inputs == {"base": "m:v1", "data": "d:v1"}


def test_a_request_carries_what_the_task_needs() -> None:
    request = train.request({"base": "m:v1", "data": "d:v1"})
    assert (request.task, request.pool, request.retries, request.publish) == ("train", "gpu", 3, "router")
    assert request.resources == Resources(cpu=4, gpu="L4:1")


def test_inputs_get_the_role_that_their_class_tells() -> None:
    assert train.request({"base": "m", "data": "d"}).roles == {"base": Role.BASE, "data": Role.DATA}
    assert judge.request({"subject": "a", "data": "d", "base": "m"}).roles == {
        "subject": Role.SUBJECT,
        "data": Role.HELD_OUT,
        "base": Role.BASE,
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"data": "d"}, "base"),
        ({"base": "m", "data": "d", "learning_rate": "1"}, "learning_rate"),
        ({"base": "m", "data": "d", "rank": "many"}, "rank"),
        ({"base": "m", "data": "d", "method": "qlora"}, "method"),
        ({"base": "", "data": "d"}, "base"),
        ({"base": 3, "data": "d"}, "base"),
        ({"base": "m", "data": "d", "output": "/etc"}, "output"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        train.request(arguments)


def test_an_input_of_another_kind_is_refused() -> None:
    judge.check_kinds({"subject": "adapter", "data": "dataset"})
    with pytest.raises(KindMismatch, match="'data' of 'judge' takes dataset, and was given model"):
        judge.check_kinds({"data": "model"})


def test_an_artifact_that_came_in_can_be_handed_on(tmp_path: Path) -> None:
    content = StoredContent("value-1", "model", "sha256:1", "m:v1")
    given = Model.stored(content, lambda: tmp_path)
    assert train.request({"base": given, "data": "d"}).inputs["base"] == "value-1"


def test_an_input_is_fetched_once_and_only_when_it_is_touched(tmp_path: Path) -> None:
    fetched: list[int] = []

    def fetch() -> Path:
        fetched.append(1)
        return tmp_path

    model = Model.stored(StoredContent("value-1", "model", "sha256:1", "m:v1"), fetch)
    assert (model.ref, model.digest, repr(model)) == ("m:v1", "sha256:1", "Model('m:v1')")
    assert not fetched
    assert Path(model) == tmp_path
    assert str(model / "config.json") == f"{tmp_path}/config.json"
    assert len(fetched) == 1


def test_a_task_that_takes_anything_under_any_name_is_refused() -> None:
    def loose(**options: int) -> None: ...

    with pytest.raises(InvalidInput, match="options"):
        Task(loose).request({})


def test_any_artifact_may_be_asked_for() -> None:
    def count(things: Artifact) -> int:
        return 0

    Task(count).check_kinds({"things": "dataset"})


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--rank", "8", "--base=m:v1"], {"rank": "8", "base": "m:v1"}),
        (["--max-length", "9"], {"max_length": "9"}),
        (["--quick", "--rank", "8"], {"quick": "true", "rank": "8"}),
        (["--note", "a=b"], {"note": "a=b"}),
        (["--delta", "-3"], {"delta": "-3"}),
        (["--empty="], {"empty": ""}),
    ],
)
def test_options_are_read_as_they_stand_on_a_command_line(words: list[str], given: dict[str, str]) -> None:
    assert options_to_mapping(words) == given


@pytest.mark.parametrize("words", [["8"], ["--"], ["--a", "1", "--a", "2"], ["--a", "1", "2"]])
def test_words_that_belong_to_no_option_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidInput):
        options_to_mapping(words)


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_is_a_task_whose_parameters_can_be_given(name: str) -> None:
    found = recipe(name)
    assert found.results
    assert all(p.artifacts or p.describe() for p in found.parameters.values())
    assert not {"output", "on_log"} & found.parameters.keys()


def test_an_unknown_recipe_is_answered_with_those_there_are() -> None:
    with pytest.raises(TaskNotFound) as raised:
        recipe("stf")
    assert "sft" in raised.value.remedy


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"HF_TOKEN": "x"}, "secrets="),
        ({"PLAIN": "hf_" + "a" * 30}, "secrets="),
        ({"PODIUM_HOME": "/tmp"}, "worker"),
        ({"A B": "x"}, "text"),
        ({"A": 1}, "text"),
    ],
)
def test_variables_that_cannot_be_kept_for_good_are_refused(env: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        TaskEnvironment("cpu", env=env)
    assert said in refused.value.remedy


def test_variables_are_recorded_with_the_run() -> None:
    task = TaskEnvironment("cpu", env={"MODE": "fast"}).task(lambda: 1)
    conditions = task.request({}).conditions
    assert conditions.env == {"MODE": "fast"}
    assert type(conditions).from_json(conditions.to_json()) == conditions


def test_what_no_executor_offers_is_refused_by_name() -> None:
    with pytest.raises(NotOffered, match="'depends_on'"):
        TaskEnvironment("cpu", depends_on=["vllm"])
    with pytest.raises(NotOffered, match="'interruptible'") as refused:
        TaskEnvironment("cpu").task(interruptible=True)(lambda: 1)
    assert "--pool" in refused.value.remedy
    assert TaskEnvironment("cpu", depends_on=()).task(interruptible=False)(lambda: 1)() == 1


@pytest.mark.parametrize(
    "option",
    [{"retries": 1}, {"cache": "auto"}, {"publish": "a"}, {"timeout": 1.0}, {"resources": Resources(cpu=2)}],
)
def test_what_a_driver_cannot_do_for_a_step_of_its_own_process_is_refused(option: dict[str, Any]) -> None:
    env = TaskEnvironment("cpu")
    with pytest.raises(InvalidInput, match=f"no {next(iter(option))}"):
        env.task(inline=True, **option)(lambda: 1)
    with pytest.raises(InvalidInput, match=f"no {next(iter(option))}"):
        env.task(inline=True)(lambda: 1).override(**option)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *[("steps", "0"), ("steps", "-1"), ("batch", "0"), ("rank", "0"), ("lr", "-1e-4"), ("lr", "nan")],
        *[("epochs", "0"), ("max_length", "0"), ("seed", "-1"), ("save_every", "-1")],
    ],
)
def test_an_amount_that_cannot_be_is_refused_before_a_run_is_queued(name: str, given: str) -> None:
    with pytest.raises(InvalidInput, match=rf"'{name}' cannot be '{given}'.*(greater|finite)"):
        recipe("sft").request({"base": "m:v1", "data": "d:v1", name: given})


def test_an_amount_that_cannot_be_is_refused_where_a_recipe_is_called_as_a_function() -> None:
    with pytest.raises(InvalidInput, match="'steps' cannot be '0'"):
        recipe("sft")("base", "data", steps=0)
    with pytest.raises(InvalidInput, match="'batch' cannot be '0'"):
        recipe("evaluate")("subject", "data", batch=0)
