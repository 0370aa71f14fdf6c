from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from registry.content.checked import checked
from registry.content.kinds import Kind, validate
from registry.content.scan import Scan, scan
from registry.errors import InvalidContent
from tests.common.content import safetensors_bytes, with_header, write_adapter, write_dataset, write_model

_PICKLE = pickle.dumps({"token": "hf_secret"})


def _validated(kind: Kind, folder: Path) -> Scan:
    return validate(kind, scan(folder))


def test_an_adapter_as_peft_saves_it_is_taken(tmp_path: Path) -> None:
    found = _validated(Kind.ADAPTER, write_adapter(tmp_path))
    assert [file.path for file in found.files] == ["adapter_config.json", "adapter_model.safetensors"]


def test_an_adapter_without_its_config_is_refused(tmp_path: Path) -> None:
    (write_adapter(tmp_path) / "adapter_config.json").unlink()
    with pytest.raises(InvalidContent, match=r"no adapter_config\.json, and an adapter needs one"):
        _validated(Kind.ADAPTER, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not valid JSON"), ("[1]", "not a JSON object"), ('{"r": 8}', "peft_type")]
)
def test_an_adapter_whose_config_is_unusable_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (write_adapter(tmp_path) / "adapter_config.json").write_text(text)
    with pytest.raises(InvalidContent, match=said) as raised:
        _validated(Kind.ADAPTER, tmp_path)
    assert raised.value.details["path"] == "adapter_config.json"


def test_an_adapter_without_weights_at_its_top_is_refused(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "deeper" / "adapter_model.safetensors")
    with pytest.raises(InvalidContent, match=r"no \.safetensors file"):
        _validated(Kind.ADAPTER, tmp_path)


def test_an_adapter_whose_weights_were_not_gathered_is_refused(tmp_path: Path) -> None:
    (write_adapter(tmp_path) / "adapter_model.safetensors").write_bytes(safetensors_bytes({}))
    with pytest.raises(InvalidContent, match="hold no tensor"):
        _validated(Kind.ADAPTER, tmp_path)


def test_a_folder_without_a_report_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match=r"has no report\.json, and a report needs one"):
        checked(write_adapter(tmp_path / "adapter"), "report")


@pytest.mark.parametrize(
    "data",
    [
        safetensors_bytes({"w": ("F32", (4, 4), 0)})[:-1],
        with_header('{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}', bytes(8)),
        with_header('{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":1}'),
        b"",
    ],
    ids=["truncated", "lies", "repeats", "empty"],
)
@pytest.mark.parametrize("kind", [Kind.ADAPTER, Kind.CHECKPOINT])
def test_weights_with_an_unsound_header_are_refused_by_name(tmp_path: Path, kind: Kind, data: bytes) -> None:
    write_dataset(write_adapter(tmp_path), {"extra/more.safetensors": data})
    with pytest.raises(InvalidContent, match=r"extra/more\.safetensors is not a sound safetensors file"):
        _validated(kind, tmp_path)


def test_a_model_needs_its_config_and_weights(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", {"w": ("F32", (4, 4), 0)})
    assert len(_validated(Kind.MODEL, folder).files) == 2
    (folder / "config.json").unlink()
    with pytest.raises(InvalidContent, match=r"no config\.json, and a model needs one"):
        _validated(Kind.MODEL, folder)


def test_a_report_needs_report_json(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"examples.jsonl": b"{}"})
    with pytest.raises(InvalidContent, match=r"no report\.json"):
        _validated(Kind.REPORT, tmp_path)
    (tmp_path / "report.json").write_text(json.dumps({"metrics": {}}))
    assert len(_validated(Kind.REPORT, tmp_path).files) == 2


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.CHECKPOINT])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "notes.txt", "weights/optimizer.pt"])
def test_a_pickle_is_refused_under_any_name(tmp_path: Path, kind: Kind, name: str) -> None:
    write_dataset(write_adapter(tmp_path), {name: _PICKLE, "config.json": b"{}", "report.json": b"{}"})
    with pytest.raises(InvalidContent, match="is a Python pickle") as raised:
        _validated(kind, tmp_path)
    assert raised.value.details["path"] == name


def test_a_pickle_named_like_weights_is_refused_as_a_pickle(tmp_path: Path) -> None:
    write_dataset(write_adapter(tmp_path), {"more.safetensors": _PICKLE})
    with pytest.raises(InvalidContent, match=r"more\.safetensors is a Python pickle"):
        _validated(Kind.ADAPTER, tmp_path)


def test_a_trainers_output_folder_is_taken_as_it_is_less_what_it_leaves_behind(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path)
    write_dataset(
        folder,
        {
            "training_args.bin": _PICKLE,
            "checkpoint-24/optimizer.pt": _PICKLE,
            "checkpoint-24/training_args.bin": _PICKLE,
            "README.md": b"# Adapter",
        },
    )
    found = _validated(Kind.ADAPTER, folder)
    assert [file.path for file in found.files] == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert [notice.split(":")[0] for notice in found.notices] == [
        "left out training_args.bin",
        "left out checkpoint-24/",
    ]


def test_a_checkpoint_keeps_its_state_but_not_the_trainers_arguments(tmp_path: Path) -> None:
    folder = write_dataset(
        write_adapter(tmp_path),
        {"optimizer.pt": _PICKLE, "rng_state.pth": _PICKLE, "training_args.bin": _PICKLE},
    )
    found = _validated(Kind.CHECKPOINT, folder)
    assert {"optimizer.pt", "rng_state.pth"} <= {file.path for file in found.files}
    assert found.get("training_args.bin") is None
    assert "token" in found.notices[0]


def test_a_folder_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"training_args.bin": _PICKLE})
    with pytest.raises(InvalidContent, match="Nothing is left"):
        _validated(Kind.DATASET, tmp_path)


@pytest.mark.parametrize("kind", [Kind.DATASET, Kind.BUNDLE])
def test_data_and_code_may_be_any_files(tmp_path: Path, kind: Kind) -> None:
    write_dataset(tmp_path, {"train.jsonl": b"{}\n", "deep/er/task.py": b"print()\n", "x.safetensors": b"no"})
    assert len(_validated(kind, tmp_path).files) == 3
