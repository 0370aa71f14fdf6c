"""Bad input ends in a message that says what to do, with the right status, and nothing stored or moved."""

from __future__ import annotations

import json
import os
import pickle
import socket
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from registry.content.scan import Scan, scan
from registry.processes import Process
from registry.protocol import Registry
from tests.common import content
from tests.common.registries import Maker, Place, write_report
from tests.unit.registry.cli.conftest import Podium, Result
from triggers.connection import Role
from triggers.nats_server import ServerPlan, User


def state(registry: Registry) -> object:
    return (
        registry.events.position().newest,
        [registry.catalog.versions(artifact.name) for artifact in registry.catalog.artifacts()],
        [registry.promotions.history(artifact.name) for artifact in registry.catalog.artifacts()],
        registry.apps.objects(),
    )


@pytest.fixture
def refused(podium: Podium, bot: Maker) -> Callable[..., Result]:
    """Run a command line that must be refused, and check that nothing has changed by it."""
    podium("promote", "bot:v1", "production")
    podium("promote", "bot:v2", "production")

    def run(*arguments: object, status: int, changes_nothing: bool = True) -> Result:
        before = state(bot.registry)
        result = podium(*arguments)
        assert result.status == status, result
        assert result.stdout == ""
        message, *remedy = result.stderr.splitlines()
        assert message.startswith("podium: ")
        assert remedy, "nothing says what to do"
        if changes_nothing:
            assert state(bot.registry) == before
        as_json = podium(*arguments, "--json")
        assert (as_json.status, as_json.stderr) == (status, "")
        assert as_json.json["remedy"]
        return result

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("show", "nobody:v1"),
        ("show", "bot:v9"),
        ("show", "bot:nowhere"),
        ("show", "bot@sha256:" + "0" * 64),
        ("pull", "nobody:v1", "pulled"),
        ("pull", "bot:v9", "pulled"),
        ("list", "nobody"),
        ("diff", "bot:v1", "bot:v9"),
        ("diff", "nobody:v1", "bot:v1"),
        ("delete", "bot:v9"),
        ("delete", "nobody:v1"),
        ("tag", "bot:v9", "a=b"),
        ("promote", "bot:v9", "production"),
        ("promote", "nobody:v1", "production"),
        ("promote", "bot:nowhere", "production"),
        ("rollback", "nobody", "production"),
        ("rollback", "bot", "nowhere"),
        ("rollback", "bot", "production", "--to", "v9"),
        ("release", "bot", "nowhere"),
        ("history", "nobody"),
        ("history", "bot", "nowhere"),
        ("lineage", "nobody"),
        ("lineage", "bot:v9"),
        ("judge", "bot:v9", "production"),
    ],
)
def test_what_is_not_there_is_wrong_input(refused: Callable[..., Result], arguments: tuple[str, ...]) -> None:
    said = refused(*arguments, status=2).stderr
    assert "here is no " in said or "has no alias" in said


@pytest.mark.parametrize(
    "alias", ["v7", "latest", "two words", "..", "Prod", "x" * 300, "prod\u00fc", "", "a_b"]
)
@pytest.mark.parametrize(
    "verb", [("promote", "bot:v1"), ("rollback", "bot"), ("history", "bot"), ("release", "bot")]
)
def test_an_alias_that_breaks_the_grammar(
    refused: Callable[..., Result], verb: tuple[str, str], alias: str
) -> None:
    assert "cannot be an alias" in refused(*verb, alias, status=2).stderr


@pytest.mark.parametrize("name", ["two words", "..", "a..b", "Bot", "x" * 300, "b\u00f6t", "", "a/b", ".bot"])
def test_a_name_that_breaks_the_grammar(refused: Callable[..., Result], adapter: Path, name: str) -> None:
    assert "cannot name an artifact" in refused("push", name, adapter, "--kind", "adapter", status=2).stderr
    assert "cannot name an artifact" in refused("promote", f"{name}:v1", "production", status=2).stderr
    assert "cannot name an artifact" in refused("rollback", name, "production", status=2).stderr
    assert "cannot name an artifact" in refused("show", name, status=2).stderr


@pytest.mark.parametrize("verb", [("promote", "bot", "production"), ("delete", "bot"), ("tag", "bot", "a=b")])
def test_a_bare_name_where_something_would_change(
    refused: Callable[..., Result], verb: tuple[str, ...]
) -> None:
    assert "does not say which version" in refused(*verb, status=2).stderr


def test_a_bare_name_as_a_parent(refused: Callable[..., Result], adapter: Path) -> None:
    refused("push", "bot", adapter, "--base", "tiny", status=2)


def broken_safetensors(header: dict[str, object], body: bytes = b"\0" * 16) -> bytes:
    return content.with_header(json.dumps(header), body)


def tensor(begin: int, end: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}


BROKEN: dict[str, Callable[[Path], object]] = {
    "no configuration": lambda folder: (folder / "adapter_config.json").unlink(),
    "a configuration that is no JSON": lambda folder: (folder / "adapter_config.json").write_text("{"),
    "no tensors": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "a truncated file": lambda folder: truncate(folder / "adapter_model.safetensors"),
    "an empty file": lambda folder: (folder / "adapter_model.safetensors").write_bytes(b""),
    "a header that is longer than the file": lambda folder: weights(
        folder, struct.pack("<Q", 1 << 40) + b"{}"
    ),
    "sizes that are not those of the shape": lambda folder: weights(
        folder, broken_safetensors({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 16]}})
    ),
    "offsets beyond the end": lambda folder: weights(folder, broken_safetensors({"a": tensor(0, 64)})),
    "tensors that overlap": lambda folder: weights(
        folder, broken_safetensors({"a": tensor(0, 12), "b": tensor(8, 16)})
    ),
    "a key that is repeated": lambda folder: weights(
        folder,
        content.with_header(
            '{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},'
            ' "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
            b"\0" * 16,
        ),
    ),
    "a key that is half a character": lambda folder: weights(
        folder,
        content.with_header(
            '{"a\\ud800": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}', b"\0" * 16
        ),
    ),
    "a pickle": lambda folder: (folder / "extra.pt").write_bytes(pickle.dumps({"a": [1, 2]}, protocol=2)),
    "a pickle under another name": lambda folder: (folder / "notes.txt").write_bytes(pickle.dumps([1, 2, 3])),
    "a link": lambda folder: (folder / "link.json").symlink_to(folder / "adapter_config.json"),
    "a link out of the folder": lambda folder: (folder / "passwords").symlink_to("/etc/passwd"),
    "a link to a folder": lambda folder: (folder / "sub").symlink_to("/etc"),
    "names that are one when folded": lambda folder: [
        (folder / n).write_text(n) for n in ("README", "readme")
    ],
    "names that are one in Unicode": lambda folder: [
        (folder / n).write_text(n) for n in ("caf\u00e9", "cafe\u0301")
    ],
}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def weights(folder: Path, data: bytes) -> None:
    (folder / "adapter_model.safetensors").write_bytes(data)


@pytest.mark.parametrize("fault", BROKEN)
def test_an_adapter_that_is_none(refused: Callable[..., Result], adapter: Path, fault: str) -> None:
    BROKEN[fault](adapter)
    for name in ("bot", "new-bot"):
        refused("push", name, adapter, "--kind", "adapter", status=2)


def test_an_empty_folder_and_a_path_that_is_not_there(refused: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no files" in refused("push", "bot", "empty", status=2).stderr
    assert "nothing at" in refused("push", "bot", "missing", status=2).stderr


def test_a_file_that_goes_while_it_is_checked(
    refused: Callable[..., Result], adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanishing(path: Path) -> Scan:
        found = scan(path)
        (path / "adapter_config.json").unlink(missing_ok=True)
        return found

    monkeypatch.setattr("registry.content.checked.scan", vanishing)
    assert "adapter_config.json" in refused("push", "bot", adapter, status=2).stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be read by root")
def test_a_file_that_may_not_be_read(refused: Callable[..., Result], adapter: Path) -> None:
    (adapter / "adapter_config.json").chmod(0)
    assert "Permission denied" in refused("push", "bot", adapter, status=2).stderr


def test_a_kind_that_is_missing_unknown_or_another(refused: Callable[..., Result], adapter: Path) -> None:
    refused("push", "new-bot", adapter, status=2)
    refused("push", "new-bot", adapter, "--kind", "lora", status=2)
    refused("push", "bot", adapter, "--kind", "model", status=2)


def test_a_parent_that_cannot_be_one(refused: Callable[..., Result], adapter: Path) -> None:
    refused("push", "bot", adapter, "--base", "held-out:v1", status=2)
    refused("push", "bot", adapter, "--data", "tiny:v1", status=2)
    refused("push", "bot", adapter, "--parent", "nobody:v1", status=2)


def test_a_report_on_another_version_or_another_held_out_set(
    refused: Callable[..., Result], bot: Maker, tmp_path: Path
) -> None:
    bot.dataset("easier")
    subject, data = bot.registry.catalog.resolve("bot:v1"), bot.registry.catalog.resolve("held-out:v1")
    folder = write_report(tmp_path / "report", subject.digest, data.digest, 0.8)
    push = ("push", "scores", folder, "--kind", "report")
    assert "judges the version" in refused(*push, "--of", "bot:v2", status=2).stderr
    assert "judges the held-out set" in refused(*push, "--of", "bot:v1", "--on", "easier:v1", status=2).stderr


def test_a_trainers_output_folder_is_pushed_without_its_pickle(podium: Podium, adapter: Path) -> None:
    (adapter / "training_args.bin").write_bytes(pickle.dumps({"hub_token": "hf_secret"}))
    done = podium("push", "bot", adapter, "--kind", "adapter")
    assert done.status == 0
    assert "training_args.bin" in done.stderr
    files = podium("show", "bot:v1", "--json").json["file_list"]
    assert "training_args.bin" not in {file["path"] for file in files}


@pytest.mark.parametrize("expect", ["none", "v1", "v9"])
def test_a_stale_expectation_is_a_refusal(refused: Callable[..., Result], expect: str) -> None:
    said = refused("promote", "bot:v3", "production", "--expect", expect, status=1).stderr
    assert "is at v2 (generation 2)" in said


@pytest.mark.parametrize("expect", ["1", "latest", "v0", "production"])
def test_an_expectation_that_is_no_version(refused: Callable[..., Result], expect: str) -> None:
    refused("promote", "bot:v3", "production", "--expect", expect, status=2)


def test_rollbacks_that_lead_nowhere_are_refusals(refused: Callable[..., Result]) -> None:
    assert "never was" in refused("rollback", "bot", "production", "--to", "v3", status=1).stderr
    assert "already" in refused("rollback", "bot", "production", "--to", "v2", status=1).stderr


def test_deleting_what_is_needed_is_a_refusal(refused: Callable[..., Result]) -> None:
    assert "is at it" in refused("delete", "bot:v2", status=1).stderr
    assert "rolled back to it" in refused("delete", "bot:v1", status=1).stderr


def test_pulling_into_a_folder_that_is_there(refused: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    refused("pull", "bot:v1", "taken", status=2)
    assert content.read_folder(tmp_path / "taken") == {"mine.txt": b"mine"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("promote",),
        ("promote", "bot:v1"),
        ("promote", "bot:v1", "production", "extra"),
        ("promote", "bot:v1", "production", "--wait", "forever"),
        ("promote", "bot:v1", "production", "--frobnicate"),
        ("tag", "bot:v1", "no-equals-sign"),
        ("tag", "bot:v1", "=x"),
        ("history", "bot", "--limit", "0"),
        ("list", "bot", "--after", "soon"),
        ("promote", "bot:v1", "production", "--wait", "live", "--timeout", "nan"),
        ("promote", "bot:v1", "production", "--wait", "live", "--timeout", "inf"),
        ("promote", "bot:v1", "production", "--wait", "live", "--timeout", "-1"),
        ("events", "list", "--after", "9" * 30),
        ("push", "bot", ""),
        ("pull", "bot:v1", ""),
        ("run", "prefetch", "--source", "x", "--local", "--detach"),
        ("up", "--cpu", "nan"),
        ("up", "--without", "nothing"),
        ("worker", "--cpu", "inf"),
        ("worker", "--grace", "nan"),
        ("worker", "--memory", "9" * 400 + "T"),
        ("worker", "--gpu", "\u00b2"),
    ],
)
def test_wrong_use(refused: Callable[..., Result], arguments: tuple[str, ...]) -> None:
    refused(*arguments, status=2)


def chunk_files(place: Place) -> list[Path]:
    return [path for path in (place.settings.home / "blobs" / "chunks").rglob("*") if path.is_file()]


@pytest.mark.parametrize("fault", ["damaged", "missing"])
def test_a_chunk_damaged_or_missing_in_the_store(
    refused: Callable[..., Result], place: Place, tmp_path: Path, fault: str
) -> None:
    for path in chunk_files(place):
        path.chmod(0o644)
        if fault == "missing":
            path.unlink()
        else:
            path.write_bytes(b"\xff" * path.stat().st_size)
    refused("pull", "bot:v1", "pulled", status=3)
    assert not (tmp_path / "pulled").exists()


def test_a_database_of_a_newer_schema(podium: Podium, bot: Maker, place: Place) -> None:
    from registry.database.statements import sql

    with place.database().transaction() as transaction:
        transaction.execute(sql("UPDATE alembic_version SET version_num = '9999'"))
    failed = podium("list")
    assert failed.status == 3
    assert "schema 9999" in failed.stderr
    assert "Upgrade podium" in failed.stderr


def test_a_database_on_a_network_file_system(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.database.filesystem.mounts", lambda: [("/", "nfs4")])
    failed = podium("list")
    assert failed.status == 3
    assert "network file system (nfs4)" in failed.stderr


def test_a_database_server_that_does_not_answer(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_URL", "postgresql://ada:hunter2@127.0.0.1:1/podium")
    failed = podium("list")
    assert failed.status == 3
    assert "hunter2" not in failed.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PODIUM_URL", "mysql://x/y"),
        ("PODIUM_URL", "postgresql://host:port/name"),
        ("PODIUM_BLOBS", "ftp://x/y"),
        ("PODIUM_ROLLBACK_WINDOW", "soon"),
    ],
)
def test_a_setting_that_cannot_be_used(
    podium: Podium, bot: Maker, adapter: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    failed = podium("push", "bot", adapter)
    assert failed.status == 2
    assert variable in failed.stderr


@pytest.mark.parametrize("name", ["a b", "what?", "a#b", "100%20", "\udcff"])
def test_a_home_may_have_any_name(
    podium: Podium, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    home = tmp_path / "homes" / name
    monkeypatch.setenv("PODIUM_HOME", str(home))
    assert podium("push", "bot", adapter, "--kind", "adapter").status == 0
    assert podium("pull", "bot:v1", "pulled").status == 0
    assert {"podium.db", "blobs"} <= {each.name for each in home.iterdir()}
    assert [each.name for each in (tmp_path / "homes").iterdir()] == [name]


@pytest.mark.parametrize("marker", ["", "{", "[1]", "{}"])
def test_a_store_whose_marker_is_damaged(
    refused: Callable[..., Result], podium: Podium, place: Place, marker: str
) -> None:
    (place.settings.home / "blobs" / "store.json").write_text(marker)
    assert "store.json" in refused("pull", "bot:v1", "pulled", status=3).stderr
    assert {f["part"]: f["ok"] for f in podium("doctor", "--json").json}["blob store"] is False


def test_damage_that_no_command_has_met_yet_is_found_by_doctor(
    podium: Podium, bot: Maker, place: Place
) -> None:
    bot.registry.close()
    path = place.settings.home / "podium.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'checkpoint'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert podium("list").status == 0
    done = podium("doctor", "--json")
    assert done.status == 3
    assert "damaged" in {f["part"]: f["says"] for f in done.json}["database"]


def test_a_store_that_belongs_to_another_database(
    podium: Podium, bot: Maker, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_BLOBS", f"file://{bot.registry.settings.home}/blobs")
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "other"))
    failed = podium("push", "bot", adapter, "--kind", "adapter")
    assert failed.status == 2
    assert "PODIUM_BLOBS" in failed.stderr
    assert podium("list", "--json").json == []


def test_nats_down_lets_a_promotion_through_and_says_that_its_event_waits(
    podium: Podium, bot: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = podium("promote", "bot:v1", "production")
    assert done.status == 0
    assert "'podium up' does not run here" in done.stderr
    assert "6 events will wait" in done.stderr
    monkeypatch.setenv("PODIUM_NATS", "nats://127.0.0.1:1")
    done = podium("promote", "bot:v2", "production", "--json")
    assert "NATS (127.0.0.1:1) does not answer" in done.json["notice"]
    assert bot.registry.promotions.get("bot", "production").version == 2


def test_a_server_of_podium_up_that_answers_is_found(
    podium: Podium, bot: Maker, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PODIUM_NATS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        users = {role: User(role.value, "secret") for role in Role}
        plan = ServerPlan(server.getsockname()[1], users).to_json(owner=Process.current())
        (place.settings.home / "nats.json").write_text(json.dumps(plan))
        assert "notice" not in podium("promote", "bot:v1", "production", "--json").json
        assert {f["part"]: f["ok"] for f in podium("doctor", "--json").json}["nats"]


@pytest.mark.parametrize(
    "said", ["", "{", "[]", "null", '{"port": 1}', '{"port": "x", "owner": {}}', '{"owner": 3}']
)
def test_what_podium_up_left_behind_is_not_believed(
    podium: Podium, bot: Maker, place: Place, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.delenv("PODIUM_NATS", raising=False)
    (place.settings.home / "nats.json").write_text(said)
    done = podium("promote", "bot:v1", "production", "--json")
    assert done.status == 0
    assert "'podium up' does not run here" in done.json["notice"]
