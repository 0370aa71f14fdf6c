"""Evidence that is being made: judging waits for it, and names the run that makes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from registry.cli import evidence
from registry.gates import Gate, Threshold
from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import Cause, Run, RunError, RunRequest
from registry.values import AppObject, Parent, Role
from tests.common.registries import Maker, write_report
from tests.unit.registry.cli.conftest import Podium
from triggers import OnArtifact, Trigger, queue_run

ROOM = Resources(cpu=8, memory="8Gi")
INPUTS = {"subject": "bot:v1", "data": "held-out:v1"}
ROLES = {"subject": Role.SUBJECT, "data": Role.HELD_OUT}
LONG = 60.0  # seconds; what takes so long has waited for nothing


@pytest.fixture(autouse=True)
def gate(registry: Registry, bot: Maker) -> None:
    rule = Threshold(metric="accuracy", on="held-out:v1", at_least=0.8)
    declared = Gate("accurate", "bot", "production", rule)
    deploy(registry, AppObject("app", "gate", "accurate", declared.to_json()))


def deploy(registry: Registry, *objects: AppObject) -> None:
    registry.apps.apply("app", objects, plan=registry.apps.plan("app", objects))


def queue(registry: Registry) -> Run:
    return registry.runs.queue(RunRequest("evaluate", inputs=INPUTS, roles=ROLES))


def measure(registry: Registry, make: Maker, run: Run, value: float, folder: Path) -> None:
    """Carry the evaluation out as a worker would."""
    (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM, only=run.id)
    version, data = registry.catalog.resolve("bot:v1"), registry.catalog.resolve("held-out:v1")
    report = write_report(folder, version.digest, data.digest, value)
    parents = [Parent(version.ref, Role.SUBJECT), Parent(data.ref, Role.HELD_OUT)]
    acting = registry.acting(claim.origin)
    make.publish("scores", report, "report", parents=parents, by=acting)
    acting.runs.finish(run.id, [])


def test_a_refusal_names_the_evaluation_that_runs_and_advises_to_wait(
    podium: Podium, registry: Registry
) -> None:
    run = queue(registry)
    for refused in (podium("promote", "bot:v1", "production"), podium("judge", "bot:v1", "production")):
        assert refused.status == 1
        assert run.id in refused.stdout + refused.stderr
        assert "podium promote bot:v1 production --wait evidence" in refused.stderr
        assert "podium evaluate" not in refused.stdout + refused.stderr


@pytest.mark.parametrize(("value", "status"), [(0.9, 0), (0.7, 1)])
def test_a_promotion_that_waits_for_evidence_is_judged_by_it(
    podium: Podium, registry: Registry, bot: Maker, tmp_path: Path, value: float, status: int
) -> None:
    run = queue(registry)
    with ThreadPoolExecutor(1) as pool:
        measuring = pool.submit(measure, registry, bot, run, value, tmp_path / "report")
        done = podium("promote", "bot:v1", "production", "--wait", "evidence", "--timeout", LONG)
        measuring.result()
    assert done.status == status
    assert f"accuracy is {value}, needs at least 0.8  (scores:v1)" in done.stdout + done.stderr


def test_evidence_that_does_not_come_in_time_is_said_with_where_to_look(
    podium: Podium, registry: Registry
) -> None:
    run = queue(registry)
    late = podium("judge", "bot:v1", "production", "--wait", "evidence", "--timeout", 0)
    assert late.status == 3
    assert f"podium runs logs {run.id}" in late.stderr


def test_evidence_that_nobody_makes_is_not_waited_for(podium: Podium) -> None:
    refused = podium("promote", "bot:v1", "production", "--wait", "evidence", "--timeout", LONG)
    assert refused.status == 1
    assert "Run: podium evaluate bot:v1 --on held-out:v1" in refused.stderr


def test_what_an_evaluation_printed_last_is_shown_however_long_its_log_is(registry: Registry) -> None:
    run = queue(registry)
    (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM, only=run.id)
    acting = registry.acting(claim.origin)
    for sequence, data in enumerate([b"begins\n", b"1 of 2\n", b"2 ", b"of 2\n\n"], start=1):
        acting.runs.append_log(run.id, sequence, data)
    assert evidence.last_line(registry, [run]) == "2 of 2"


def test_an_evaluation_that_failed_is_said_and_not_waited_for(podium: Podium, registry: Registry) -> None:
    run = queue(registry)
    (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM, only=run.id)
    registry.acting(claim.origin).runs.end(run.id, Cause.ERROR, RunError("ValueError", "no tickets"))
    trigger = Trigger("judge", OnArtifact("bot"), queue_run("evaluate", subject="{ref}", data="held-out:v1"))
    deploy(registry, *registry.apps.objects("gate"), AppObject("app", "trigger", "judge", trigger.to_json()))
    refused = podium("promote", "bot:v1", "production", "--wait", "evidence", "--timeout", LONG)
    assert (refused.status, "Waiting" in refused.stderr) == (1, False)
    assert f"run {run.id} was to measure accuracy" in refused.stderr and "no tickets" in refused.stderr


def test_a_trigger_is_given_a_moment_to_have_it_evaluated(
    podium: Podium, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "BEGIN_SECONDS", 0.2)
    gates = registry.apps.objects("gate")
    action = queue_run("evaluate", subject="{ref}", data="held-out:v1")
    trigger = Trigger("judge", OnArtifact("bot"), action)
    deploy(registry, *gates, AppObject("app", "trigger", "judge", trigger.to_json()))
    refused = podium("promote", "bot:v1", "production", "--wait", "evidence", "--timeout", LONG)
    assert refused.status == 1
    assert "Waiting for a trigger to have bot:v1 evaluated." in refused.stderr


def test_judging_fails_where_a_gate_does_and_says_what_is_wanted(
    podium: Podium, registry: Registry, bot: Maker, tmp_path: Path
) -> None:
    measure(registry, bot, queue(registry), 0.7, tmp_path / "worse")
    judged = podium("judge", "bot:v1", "production")
    assert judged.status == 1
    assert all(said in judged.stdout for said in ("FAILED", "accurate", "0.7", "0.8", "scores:v1"))
    data = podium("judge", "bot:v1", "production", "--json")
    assert (data.status, data.json[0]["passed"]) == (1, False)
    measure(registry, bot, queue(registry), 0.9, tmp_path / "better")
    assert podium("judge", "bot:v1", "production").status == 0
