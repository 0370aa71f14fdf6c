"""Settings: read in one place, documented, and never repeated where they are secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import InvalidSetting
from registry.settings import Settings, load_settings

_ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("PODIUM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_nothing_needs_to_be_set(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.home == tmp_path / ".podium"
    assert settings.database_url == f"sqlite:///{tmp_path}/.podium/podium.db"
    assert settings.blobs_url == f"file://{tmp_path}/.podium/blobs"


def test_the_home_may_be_relative_and_is_then_of_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", "here")
    assert load_settings().home == tmp_path / "here"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PODIUM_ACTOR", "ada\udcff"),
        ("PODIUM_ACTOR", "ada\x1b[31m"),
        ("PODIUM_ACTOR", "a" * 201),
        ("PODIUM_HOME", "~nobody-of-that-name/podium"),
        ("PODIUM_LEASE_SECONDS", "0"),
        ("PODIUM_LEASE_SECONDS", "inf"),
        ("PODIUM_LEASE_SECONDS", "nan"),
        ("PODIUM_METRICS", "localhost"),
        ("PODIUM_METRICS", "localhost:http"),
        ("PODIUM_METRICS", "localhost:99999"),
        ("PODIUM_NATS", "http://host"),
        ("PODIUM_NATS", "nats://"),
        ("PODIUM_NATS", "nats://[::1"),
        ("PODIUM_NATS", "nats://host:99999"),
        ("PODIUM_NATS", "nats://host,nats://other:port"),
        ("PODIUM_ROLLBACK_WINDOW", "-1"),
        ("PODIUM_ROLLBACK_WINDOW", "999999999999999"),
        ("PODIUM_ROLLBACK_WINDOW", "soon"),
        ("PODIUM_URL", "sqlite://"),
        ("PODIUM_URL", "sqlite:///"),
        ("PODIUM_URL", "sqlite:///:memory:"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidSetting, match=variable) as refusal:
        load_settings()
    assert variable in refusal.value.remedy


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(f"PODIUM_{name.upper()}", "")
    assert load_settings().model_dump() == Settings.model_construct(home=tmp_path / ".podium").model_dump()


def test_a_relative_database_is_the_same_for_a_process_in_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_URL", "sqlite:///data/podium.db")
    assert load_settings().database_url == f"sqlite:///{tmp_path}/data/podium.db"


def test_secrets_are_masked_where_settings_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_URL", "postgresql://ada:hunter2@host/name")
    monkeypatch.setenv("PODIUM_NATS", "nats://ada:hunter2@host")
    settings = load_settings()
    assert "hunter2" in settings.database_url
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_it_is(name: str) -> None:
    assert Settings.model_fields[name].description


def test_every_setting_is_documented() -> None:
    pages = [_ROOT / "README.md", *(_ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    missing = [
        f"PODIUM_{name.upper()}" for name in Settings.model_fields if f"PODIUM_{name.upper()}" not in text
    ]
    assert missing == []


def test_the_actor_is_the_login_name_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    assert load_settings().actor_name == "user:grace"
    monkeypatch.setenv("PODIUM_ACTOR", "ada")
    assert load_settings().actor_name == "user:ada"


@pytest.mark.parametrize(
    ("given", "meant"), [("9464", "127.0.0.1:9464"), ("0.0.0.0:9464", "0.0.0.0:9464"), ("[::1]:1", "[::1]:1")]
)
def test_metrics_stay_on_the_loopback_interface_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, given: str, meant: str
) -> None:
    monkeypatch.setenv("PODIUM_METRICS", given)
    assert load_settings().metrics == meant
