"""What each verb prints with ``--json``: programs depend on it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from registry.cli.value import FILES_SHOWN
from registry.deployments import RolloutState, Target
from registry.gates import Gate, Threshold
from registry.processes import Process
from registry.protocol import Registry
from registry.values import AppObject
from tests.common import content
from tests.common.registries import Maker
from tests.unit.registry.cli.conftest import Podium


def test_push(podium: Podium, bot: Maker, adapter: Path) -> None:
    printed = podium("push", "bot", adapter, "--base", "tiny:v1", "--data", "held-out:v1", "--json").json
    version = bot.registry.catalog.resolve("bot:v4")
    assert printed["ref"] == "bot:v4"
    assert printed["digest"] == version.digest
    assert printed["version"] == 4
    assert printed["bytes_total"] == version.size
    assert 0 < printed["bytes_sent"] <= version.size
    assert printed["created"] is True
    again = podium("push", "bot", adapter, "--json").json
    assert (again["ref"], again["created"], again["bytes_sent"]) == ("bot:v4", False, 0)


def test_push_records_the_parents_that_its_options_name(podium: Podium, bot: Maker, adapter: Path) -> None:
    podium("push", "bot", adapter, "--base", "tiny:v1", "--data", "held-out:v1", "--parent", "bot:v1")
    graph = podium("lineage", "bot:v4", "--json").json
    refs = {node["value"]: node["refs"][0] for node in graph["nodes"]}
    assert {(edge["role"], refs[edge["parent"]]) for edge in graph["edges"]} == {
        ("base", "tiny:v1"),
        ("data", "held-out:v1"),
        ("parent", "bot:v1"),
    }
    assert [refs[node["value"]] for node in graph["nodes"] if node["depth"] == 0] == ["bot:v4"]
    assert len(podium("lineage", "tiny:v1", "--down", "--json").json["nodes"]) == 2


def test_push_of_a_report_with_what_it_judges(podium: Podium, bot: Maker, tmp_path: Path) -> None:
    from tests.common.registries import write_report

    subject, data = bot.registry.catalog.resolve("bot:v1"), bot.registry.catalog.resolve("held-out:v1")
    folder = write_report(tmp_path / "report", subject.digest, data.digest, 0.8, base=0.5)
    done = podium("push", "scores", folder, "--kind", "report", "--of", "bot:v1", "--on", "held-out:v1")
    assert done.status == 0
    (evaluation,) = podium("show", "bot:v1", "--json").json["evaluations"]
    assert (evaluation["report"], evaluation["evaluator"]) == ("scores:v1", "manual")
    assert evaluation["scores"]["accuracy"]["value"] == 0.8


def test_pull(podium: Podium, bot: Maker, tmp_path: Path) -> None:
    printed = podium("pull", "bot:v1", "pulled", "--json").json
    version = bot.registry.catalog.resolve("bot:v1")
    assert printed == {
        "ref": "bot:v1",
        "digest": version.digest,
        "path": str(tmp_path / "pulled"),
        "bytes": version.size,
    }
    assert "adapter_config.json" in content.read_folder(tmp_path / "pulled")


def test_promote_and_rollback(podium: Podium, bot: Maker) -> None:
    first = podium("promote", "bot:v1", "production", "--expect", "none", "--json").json
    assert {key: first[key] for key in ("artifact", "alias", "from", "to", "generation")} == {
        "artifact": "bot",
        "alias": "production",
        "from": None,
        "to": "v1",
        "generation": 1,
    }
    podium("promote", "bot:v2", "production", "--expect", "v1")
    back = podium("rollback", "bot", "production", "--reason", "worse", "--json").json
    assert (back["from"], back["to"], back["generation"]) == ("v2", "v1", 3)
    assert (back["action"], back["actor"], back["reason"]) == ("rollback", "user:ada", "worse")


def test_promoting_to_where_it_is_says_that_nothing_was_changed(podium: Podium, bot: Maker) -> None:
    podium("promote", "bot:v1", "production")
    again = podium("promote", "bot:v1", "production", "--json")
    assert (again.status, again.json["changed"], again.json["to"]) == (0, False, "v1")
    assert "already" in podium("promote", "bot:v1", "production").stdout


def test_history(podium: Podium, bot: Maker) -> None:
    podium("promote", "bot:v1", "production", "--reason", "first")
    podium("promote", "bot:v2", "production")
    podium("promote", "bot:v3", "candidate")
    printed = podium("history", "bot", "production", "--json").json
    assert [(row["from"], row["to"], row["generation"]) for row in printed] == [
        ("v1", "v2", 2),
        (None, "v1", 1),
    ]
    assert (printed[1]["actor"], printed[1]["reason"], printed[1]["verdicts"]) == ("user:ada", "first", [])
    assert datetime.fromisoformat(printed[0]["at"]).tzinfo is not None
    assert len(podium("history", "bot", "--json").json) == 3
    assert len(podium("history", "bot", "--limit", "1", "--json").json) == 1


def test_show_an_artifact(podium: Podium, bot: Maker) -> None:
    podium("promote", "bot:v1", "production")
    printed = podium("show", "bot", "--json").json
    assert printed["artifact"] == "bot"
    assert [version["ref"] for version in printed["versions"]] == ["bot:v3", "bot:v2", "bot:v1"]
    (alias,) = printed["aliases"]
    assert (alias["alias"], alias["version"], alias["generation"], alias["routes"]) == (
        "production",
        "v1",
        1,
        [],
    )


def test_show_a_version(podium: Podium, bot: Maker) -> None:
    podium("promote", "bot:v1", "production")
    printed = podium("show", "bot:production", "--json").json
    assert (printed["ref"], printed["kind"], printed["aliases"]) == ("bot:v1", "adapter", ["production"])
    assert {file["path"] for file in printed["file_list"]} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }


def test_show_lists_a_page_of_many_files_and_all_of_them_to_programs(
    podium: Podium, bot: Maker, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(FILES_SHOWN + 7):
        (folder / f"{number:03}.jsonl").write_text(f"{number}\n")
    podium("push", "rows", str(folder), "--kind", "dataset")
    shown = podium("show", "rows:v1").stdout
    assert "099.jsonl" in shown and "100.jsonl" not in shown and "... and 7 more files" in shown
    assert len(podium("show", "rows:v1", "--json").json["file_list"]) == FILES_SHOWN + 7


def test_list(podium: Podium, bot: Maker) -> None:
    podium("promote", "bot:v1", "production")
    printed = podium("list", "--json").json
    assert [(artifact["name"], artifact["kind"]) for artifact in printed] == [
        ("bot", "adapter"),
        ("held-out", "dataset"),
        ("tiny", "model"),
    ]
    assert printed[0]["aliases"] == {"production": "v1"}
    assert [artifact["name"] for artifact in podium("list", "t*", "--json").json] == ["tiny"]
    assert [version["ref"] for version in podium("list", "bot", "--after", "v3", "--json").json] == [
        "bot:v2",
        "bot:v1",
    ]
    assert (
        podium("list", "bot", "--after", "3", "--json").json
        == podium("list", "bot", "--after", "v3", "--json").json
    )
    assert podium("list", "nothing-*", "--json").json == []


def test_show_tells_what_was_live_where_nobody_leads_the_deployment_now(
    podium: Podium, bot: Maker, registry: Registry
) -> None:
    podium("promote", "bot:v2", "production")
    version = registry.catalog.resolve("bot:v2")
    target = Target("router", 1, "bot", "bot", "production", 1, 2, version.digest)
    lease = registry.leases.acquire("controller/router", Process.current().to_text())
    assert lease is not None
    rollout = registry.deployments.begin(target)
    registry.deployments.flip(rollout.id)
    registry.deployments.finish(rollout.id, RolloutState.LIVE, "")
    shown = " ".join(podium("show", "bot").stdout.split())
    assert "v2 in router" in shown and "nobody leads" not in shown
    registry.leases.release(lease)
    assert "was v2 in router; nobody leads it now" in " ".join(podium("show", "bot").stdout.split())
    (route,) = podium("show", "bot", "--json").json["aliases"][0]["routes"]
    assert (route["version"], route["led"]) == ("bot:v2", False)


def test_diff(podium: Podium, bot: Maker) -> None:
    printed = podium("diff", "bot:v1", "bot:v2", "--json").json
    assert (printed["before"], printed["after"]) == ("bot:v1", "bot:v2")
    assert [file["path"] for file in printed["files"]] == ["adapter_model.safetensors"]
    assert len(printed["tensors"]) == 4
    assert "same content" in podium("diff", "bot:v1", "bot:v1").stdout
    first = podium("diff", "bot:v1", "bot:v2").stdout.splitlines()[0]
    assert first.startswith("bot:v1 -> bot:v2: 1 file changed; 4 tensors changed; ")


def test_delete_and_tag_and_release(podium: Podium, bot: Maker) -> None:
    digest = bot.registry.catalog.resolve("bot:v3").digest
    assert podium("delete", "bot:v3", "--json").json == {"ref": "bot:v3", "digest": digest}
    assert podium("tag", "bot:v1", "a=1", "b=x=y", "--json").json == {
        "ref": "bot:v1",
        "tags": {"a": "1", "b": "x=y"},
    }
    assert podium("tag", "bot:v1", "a=", "--json").json["tags"] == {"b": "x=y"}
    podium("promote", "bot:v1", "production")
    assert podium("release", "bot", "production", "--json").json["held_by"] is None


def test_judge_and_a_refused_promotion_give_their_verdicts(podium: Podium, bot: Maker) -> None:
    guard(bot.registry)
    (verdict,) = podium("judge", "bot:v1", "production", "--json").json
    assert (verdict["gate"], verdict["passed"]) == ("accurate", False)
    refused = podium("promote", "bot:v1", "production", "--json")
    assert refused.status == 1
    assert refused.json["error"] == "gate_failed"
    assert refused.json["details"]["verdicts"][0]["rule"] == "accuracy >= 0.8 on held-out:v1"


def guard(registry: Registry) -> None:
    gate = Gate("accurate", "bot", "production", Threshold(metric="accuracy", on="held-out:v1", at_least=0.8))
    objects = [AppObject("support", "gate", gate.name, gate.to_json())]
    registry.apps.apply("support", objects, plan=registry.apps.plan("support", objects))


def test_an_error_is_one_json_object(podium: Podium, bot: Maker) -> None:
    failed = podium("promote", "bot:v9", "production", "--json")
    assert set(failed.json) == {"error", "message", "remedy", "details"}
    assert failed.stderr == ""
    assert json.loads(podium("promote", "--json").stdout)["error"] == "invalid_input"


def test_doctor(podium: Podium) -> None:
    findings = {finding["part"]: finding for finding in podium("doctor", "--json").json}
    assert findings["database"]["ok"]
    assert findings["blob store"]["ok"]
    assert not findings["nats"]["ok"]


def test_card(podium: Podium, bot: Maker, tmp_path: Path) -> None:
    assert podium("card", "bot:v1", "--json").json["card"].startswith("---\n")
    assert podium("card", "bot:v1").stdout == podium("card", "bot:v1", "--json").json["card"]
    assert podium("card", "bot:v1", "-o", "card.md", "--json").json["path"] == str(tmp_path / "card.md")
    assert podium("card", "bot:v1", "-o", "card.md").status == 2
    podium("pull", "bot:v1", "there", "--card", "--json")
    assert (tmp_path / "there" / "README.md").read_text() == (tmp_path / "card.md").read_text()
