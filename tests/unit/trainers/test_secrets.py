from __future__ import annotations

import base64
import random
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from registry.errors import InvalidInput
from trainers import secrets
from trainers.errors import ImagePullBackOffError
from trainers.secrets import Mask, check_secrets, find_secrets
from trainers.tasks import TaskEnvironment

VALUE = "s3cr3t/with+signs"


def test_secrets_come_from_where_their_names_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("in-a-file\n")
    provider = SimpleNamespace(load=lambda: lambda key: f"of {key}")
    monkeypatch.setattr(secrets, "entry_points", lambda group, name: [provider] if name == "vault" else [])
    found = find_secrets(["A", f"B=file:{file}", "C=vault:ml/hf"], {"A": "in-the-environment"})
    assert found == {"A": "in-the-environment", "B": "in-a-file", "C": "of ml/hf"}


@pytest.mark.parametrize("specification", ["A", "A=file:/no/such/file", "A=nobody:key"])
def test_a_secret_that_cannot_be_had_is_named(specification: str) -> None:
    with pytest.raises(ImagePullBackOffError, match=r"secret A|'nobody'"):
        find_secrets([specification], {})


def test_what_a_provider_raises_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def give(key: str) -> str:
        raise RuntimeError(f"the key {VALUE} is wrong")

    monkeypatch.setattr(secrets, "entry_points", lambda group, name: [SimpleNamespace(load=lambda: give)])
    with pytest.raises(ImagePullBackOffError) as raised:
        find_secrets(["A=vault:x"], {})
    assert VALUE not in str(raised.value) and raised.value.__cause__ is None


@pytest.mark.parametrize("specification", ["", "hf_abcdef ghi", "A=value", "A=", "1A", "A=file:"])
def test_what_is_no_name_of_a_secret_is_refused_and_not_repeated(specification: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check_secrets([specification])
    assert not specification or f"'{specification}'" not in str(raised.value)


def test_a_task_takes_the_secrets_of_its_environment() -> None:
    environment = TaskEnvironment("gpu", secrets=["HF_TOKEN", "WANDB=file:/run/wandb"])

    @environment.task(timeout=5, backoff=0)
    def train() -> None: ...

    conditions = train.request({}).conditions
    assert conditions.secrets == ("HF_TOKEN", "WANDB=file:/run/wandb")
    assert (conditions.timeout, conditions.backoff) == (5, 0)
    assert train.override(timeout=9).request({}).conditions.timeout == 9
    with pytest.raises(InvalidInput):
        TaskEnvironment("gpu", secrets=["the value itself"])


@pytest.mark.parametrize(
    "printed",
    [VALUE, repr(VALUE), quote(VALUE, safe=""), base64.b64encode(VALUE.encode()).decode().rstrip("=")],
)
def test_a_secret_is_masked_in_each_form_that_programs_print(printed: str) -> None:
    masked = Mask([VALUE]).text(f"a {printed} b")
    assert "[removed]" in masked and printed not in masked


def test_values_in_plain_json_are_masked() -> None:
    assert Mask([VALUE]).value({"a": [VALUE, 1], VALUE: None}) == {"a": ["[removed]", 1], "[removed]": None}


def test_lines_of_a_secret_of_many_lines_are_masked() -> None:
    assert Mask(["first-line\nsecond-line"]).text("x second-line") == "x [removed]"


def test_without_secrets_all_stays_as_it_is() -> None:
    assert Mask([]).feed(b"\xff\x00abc") == b"\xff\x00abc"
    assert Mask([]).text("abc") == "abc"


@pytest.mark.parametrize("seed", range(20))
def test_a_secret_is_masked_however_the_stream_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    values = ["abcabcabd", "abcab", "xab", "zz"]
    parts = [chance.choice([*values, "a", "ab", "abc", "x", "z", "\n", "abcabca"]) for _ in range(200)]
    data = "|".join(parts).encode() + b"|\xff"
    whole = Mask(values)
    expected = whole.feed(data) + whole.close()
    mask, shown, at = Mask(values), b"", 0
    while at < len(data):
        size = chance.randint(1, 7)
        shown += mask.feed(data[at : at + size])
        at += size
    shown += mask.close()
    assert shown == expected
    for part, seen in zip(data.split(b"|"), shown.split(b"|"), strict=True):
        if part.decode(errors="replace") in values:
            assert seen == b"[removed]"
        elif not any(value.encode() in part for value in values):
            assert seen == part
