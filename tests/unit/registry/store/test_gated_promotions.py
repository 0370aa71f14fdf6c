"""Promotions behind gates: judged on evidence of the right evaluator, which must still stand at the write."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry import crashpoints
from registry.errors import AliasMoved, EvidenceMismatch, GateFailed, VersionInUse, VersionNotFound
from registry.events import EventType
from registry.gates import Approved, BetterThanBase, BetterThanIncumbent, Gate, Rule, Threshold
from registry.protocol import Registry
from registry.runs import RunRequest
from registry.values import AppObject, Event, Parent, Role, Version
from tests.common.registries import Maker, running, write_report

ON = "held-out:v1"
ACCURATE = Threshold(metric="accuracy", on=ON, at_least=0.8)

#: Over HTTP nothing comes between: a server carries out a write and remembers its answer in one transaction.
_on_a_database = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("servers", marks=pytest.mark.integration)], indirect=True
)


@pytest.fixture
def held_out(make: Maker) -> Version:
    return make.dataset("held-out")


@pytest.fixture
def bot(make: Maker) -> Version:
    return make.adapter("bot")


def deploy(registry: Registry, *gates: Gate, app: str = "support") -> None:
    objects = [AppObject(app, "gate", gate.name, gate.to_json()) for gate in gates]
    registry.apps.apply(app, objects, plan=registry.apps.plan(app, objects))


def guard(registry: Registry, rule: Rule = ACCURATE, **options: Any) -> None:
    deploy(registry, Gate("accurate", options.pop("artifact", "bot"), "production", rule, **options))


def refusals(registry: Registry) -> list[Event]:
    return [e for e in registry.events.after(0, limit=1000) if e.type == EventType.PROMOTION_REFUSED]


def examples(*values: float) -> dict[str, float]:
    return {f"e{number}": value for number, value in enumerate(values)}


def once_at(point: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something in the middle of another's work, the first time that it comes to ``point``."""
    left = [act]

    def handler(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    return crashpoints.observed_by(handler)


def test_without_evidence_a_promotion_is_refused_with_how_to_make_some(
    registry: Registry, held_out: Version, bot: Version
) -> None:
    guard(registry)
    with pytest.raises(GateFailed, match="has not measured accuracy of bot:v1") as refusal:
        registry.promotions.promote("bot:v1", "production")
    assert refusal.value.remedy == "Run: podium evaluate bot:v1 --on held-out:v1"
    assert refusal.value.details["verdicts"][0]["gate"] == "accurate"
    assert registry.promotions.aliases("bot") == []


def test_evidence_that_a_run_makes_now_is_waited_for_and_not_made_again(
    registry: Registry, held_out: Version, bot: Version
) -> None:
    guard(registry)
    inputs = {"subject": "bot:v1", "data": "held-out:v1"}
    roles = {"subject": Role.SUBJECT, "data": Role.HELD_OUT}
    registry.runs.queue(RunRequest("my-eval", inputs=inputs, roles=roles))
    registry.runs.queue(RunRequest("evaluate", {"split": "validation"}, inputs=inputs, roles=roles))
    assert registry.promotions.judge("bot:v1", "production")[0].run is None
    run = registry.runs.queue(RunRequest("evaluate", inputs=inputs))  # as a trigger does, without roles
    (verdict,) = registry.promotions.judge("bot:v1", "production")
    assert (verdict.run, verdict.unmeasured) == (run.id, "bot:v1")
    registry.runs.cancel(run.id)
    (verdict,) = registry.promotions.judge("bot:v1", "production")
    assert (verdict.run, verdict.failed) == (None, run.id)
    assert "was cancelled" in verdict.reason


def test_a_refusal_is_an_event_with_its_verdicts(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    make.report(bot, held_out, 0.7)
    with pytest.raises(GateFailed, match=r"accuracy is 0\.7, needs at least 0\.8"):
        registry.promotions.promote("bot:v1", "production")
    (event,) = refusals(registry)
    assert (event.subject, event.data["error"], event.data["version"]) == ("bot:production", "gate_failed", 1)
    assert event.data["verdicts"][0]["evidence"] == ["scores:v1"]


def test_a_satisfied_gate_stands_in_the_history_with_its_evidence(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    make.report(bot, held_out, 0.9)
    registry.promotions.promote("bot:v1", "production")
    (verdict,) = registry.promotions.history("bot")[0].verdicts
    assert (verdict.passed, verdict.evidence, verdict.measured) == (True, ("scores:v1",), {"value": 0.9})
    assert (verdict.gate, verdict.revision) == ("accurate", 1)


def test_the_newest_report_counts(registry: Registry, make: Maker, held_out: Version, bot: Version) -> None:
    guard(registry)
    make.report(bot, held_out, 0.9)
    make.report(bot, held_out, 0.5)
    with pytest.raises(GateFailed):
        registry.promotions.promote("bot:v1", "production")


@pytest.mark.parametrize(
    ("evaluator", "counts"), [("evaluate", True), ("my-eval", False), (None, False), ("manual", False)]
)
def test_only_the_named_evaluators_reports_count(
    registry: Registry, make: Maker, held_out: Version, bot: Version, evaluator: str | None, counts: bool
) -> None:
    guard(registry)
    make.report(bot, held_out, 0.9, evaluator=evaluator)
    assert registry.promotions.judge("bot:v1", "production")[0].passed is counts


def test_a_report_pushed_by_hand_counts_only_where_a_gate_says_so(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry, evaluator="manual")
    make.report(bot, held_out, 0.9, evaluator=None)
    assert registry.promotions.promote("bot:v1", "production").changed


def test_a_report_on_another_held_out_set_does_not_count(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    make.report(bot, make.dataset("easier"), 0.99)
    assert not registry.promotions.judge("bot:v1", "production")[0].passed


def test_the_same_content_under_another_name_has_the_same_evidence(
    registry: Registry, make: Maker, held_out: Version, bot: Version, tmp_path: Any
) -> None:
    guard(registry, artifact="other-bot")
    make.report(bot, held_out, 0.9)
    registry.catalog.pull("bot:v1", tmp_path / "copy")
    registry.catalog.publish("other-bot", tmp_path / "copy", "adapter")
    assert registry.promotions.promote("other-bot:v1", "production").changed


@pytest.mark.parametrize(("alias", "artifact"), [("candidate", "bot"), ("production", "sales-*")])
def test_a_gate_of_another_alias_or_artifact_says_nothing(
    registry: Registry, held_out: Version, bot: Version, alias: str, artifact: str
) -> None:
    guard(registry, artifact=artifact)
    assert registry.promotions.judge("bot:v1", alias) == []
    assert registry.promotions.promote("bot:v1", alias).changed


def test_all_gates_must_pass_and_all_are_told(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    deploy(
        registry,
        Gate("a-accurate", "bot", "production", ACCURATE),
        Gate("b-better", "bot", "production", BetterThanBase(metric="accuracy", on=ON)),
    )
    make.report(bot, held_out, 0.9, base=0.95)
    with pytest.raises(GateFailed, match=r"b-better +accuracy is 0\.9, the base model's 0\.95") as refusal:
        registry.promotions.promote("bot:v1", "production")
    assert [v["passed"] for v in refusal.value.details["verdicts"]] == [True, False]


def test_the_incumbent_is_beaten_on_the_same_examples(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry, BetterThanIncumbent(metric="accuracy", on=ON))
    make.report(bot, held_out, 0.5, examples=examples(*[1.0, 0.0] * 10))
    registry.promotions.promote("bot:v1", "production")
    worse, better = make.adapter("bot"), make.adapter("bot")
    make.report(worse, held_out, 0.4, examples=examples(*[0.0] * 12, *[1.0] * 8))
    make.report(better, held_out, 1.0, examples=examples(*[1.0] * 20))
    with pytest.raises(GateFailed, match="paired gain"):
        registry.promotions.promote(worse.ref, "production")
    promotion = registry.promotions.promote(better.ref, "production")
    assert promotion.verdicts[0].evidence == ("scores:v3", "scores:v1")


def test_rollback_asks_no_gate(registry: Registry, make: Maker, held_out: Version, bot: Version) -> None:
    registry.promotions.promote("bot:v1", "production")
    make.adapter("bot")
    registry.promotions.promote("bot:v2", "production")
    guard(registry)
    assert registry.promotions.rollback("bot", "production").to_version == 1


def test_a_gate_whose_held_out_set_is_gone_says_so(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry, replace(ACCURATE, on="held-out:v2"))
    with pytest.raises(VersionNotFound):
        registry.promotions.promote("bot:v1", "production")


def test_a_held_out_set_that_a_gate_judges_on_is_not_deleted(
    registry: Registry, make: Maker, held_out: Version
) -> None:
    guard(registry)
    with pytest.raises(VersionInUse, match="the gate 'accurate' judges on it"):
        registry.catalog.delete("held-out:v1")
    deploy(registry)
    assert registry.catalog.delete("held-out:v1").number == 1


def test_judging_moves_nothing_and_writes_no_event(
    registry: Registry, held_out: Version, bot: Version
) -> None:
    guard(registry)
    before = registry.events.position().newest
    assert [v.passed for v in registry.promotions.judge("bot:v1", "production")] == [False]
    assert registry.promotions.aliases("bot") == []
    assert registry.events.position().newest == before


@_on_a_database
def test_a_worse_report_that_comes_between_judging_and_writing_is_judged(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    make.report(bot, held_out, 0.9)
    worse = once_at("promotion.judged", lambda: make.report(bot, held_out, 0.1))
    with worse, pytest.raises(GateFailed, match=r"accuracy is 0\.1"):
        registry.promotions.promote("bot:v1", "production")


@_on_a_database
def test_a_gate_that_comes_between_judging_and_writing_is_asked(
    registry: Registry, held_out: Version, bot: Version
) -> None:
    with once_at("promotion.judged", lambda: guard(registry)), pytest.raises(GateFailed):
        registry.promotions.promote("bot:v1", "production")


@_on_a_database
def test_a_gate_that_is_changed_between_judging_and_writing_is_asked_again(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    make.report(bot, held_out, 0.9)
    stricter = Threshold(metric="accuracy", on=ON, at_least=0.95)
    with once_at("promotion.judged", lambda: guard(registry, stricter)), pytest.raises(GateFailed):
        registry.promotions.promote("bot:v1", "production")


@_on_a_database
def test_a_gate_that_is_removed_and_declared_anew_meanwhile_is_asked_again(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    def replace() -> None:
        deploy(registry)
        guard(registry, Threshold(metric="accuracy", on=ON, at_least=0.95))

    guard(registry)
    make.report(bot, held_out, 0.9)
    with once_at("promotion.judged", replace), pytest.raises(GateFailed):
        registry.promotions.promote("bot:v1", "production")


@_on_a_database
def test_an_incumbent_that_changes_between_judging_and_writing_is_compared_with(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry, BetterThanIncumbent(metric="accuracy", on=ON))
    middling, best = make.adapter("bot"), make.adapter("bot")
    for version, right in ((bot, 0), (middling, 10), (best, 20)):
        make.report(version, held_out, right / 20, examples=examples(*[1.0] * right, *[0.0] * (20 - right)))
    registry.promotions.promote(bot.ref, "production")
    faster = once_at("promotion.judged", lambda: registry.promotions.promote(best.ref, "production"))
    with faster, pytest.raises(GateFailed, match="bot:v3 has 1"):
        registry.promotions.promote(middling.ref, "production")


@_on_a_database
def test_better_evidence_that_comes_meanwhile_lets_it_pass(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    with once_at("promotion.judged", lambda: make.report(bot, held_out, 0.9)):
        assert registry.promotions.promote("bot:v1", "production").verdicts[0].measured == {"value": 0.9}
    assert refusals(registry) == []


@_on_a_database
def test_evidence_that_never_stands_still_ends_in_a_refusal(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    guard(registry)
    changing = iter(range(100))

    def handler(point: str) -> None:
        if point == "promotion.judged":
            make.report(bot, held_out, 0.9 + next(changing) / 1000)

    with crashpoints.observed_by(handler), pytest.raises(AliasMoved, match="changed each time"):
        registry.promotions.promote("bot:v1", "production")
    assert registry.promotions.aliases("bot") == []


def test_a_report_that_judges_another_version_than_it_is_published_for_is_refused(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    other = make.adapter("bot")
    with pytest.raises(EvidenceMismatch, match="judges the version"):
        make.report(bot, held_out, 0.9, of=other)
    assert [artifact.name for artifact in registry.catalog.artifacts()] == ["bot", "held-out"]


def test_a_report_on_another_held_out_set_than_it_is_published_for_is_refused(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    with pytest.raises(EvidenceMismatch, match="judges the held-out set"):
        make.report(bot, held_out, 0.9, stated_on=make.dataset("easier"))
    assert registry.evaluations.of(bot.digest) == []


def test_a_report_on_what_is_not_here_is_refused(
    registry: Registry, make: Maker, held_out: Version, bot: Version, tmp_path: Any
) -> None:
    nowhere = "sha256:" + "0" * 64
    for number, pair in enumerate([(nowhere, held_out.digest), (bot.digest, nowhere)]):
        folder = write_report(tmp_path / f"report-{number}", *pair, 0.9)
        with pytest.raises(EvidenceMismatch):
            registry.catalog.publish("scores", folder, "report")
    assert registry.evaluations.of(bot.digest) == []


def test_publishing_a_report_keeps_its_scores_and_is_an_event(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    make.report(bot, held_out, 0.9, base=0.4, examples=examples(1.0, 0.0))
    (evaluation,) = registry.evaluations.of(bot.digest)
    assert (evaluation.report, evaluation.evaluator) == ("scores:v1", "evaluate")
    score = evaluation.scores["accuracy"]
    assert (score.value, score.base, score.n, score.higher_is_better) == (0.9, 0.4, 2, True)
    recorded = [e for e in registry.events.after(0) if e.type == EventType.EVALUATION_RECORDED]
    assert [(e.subject, e.key, e.data["scores"]) for e in recorded] == [("bot:v1", "bot", {"accuracy": 0.9})]


def test_the_same_report_again_is_no_new_evidence(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    make.report(bot, held_out, 0.9)
    make.report(bot, held_out, 0.9)
    assert len(registry.evaluations.of(bot.digest)) == 1


def test_a_report_that_no_run_made_is_recorded_as_made_by_hand(
    registry: Registry, make: Maker, held_out: Version, bot: Version
) -> None:
    make.report(bot, held_out, 0.9, evaluator=None)
    assert registry.evaluations.of(bot.digest)[0].evaluator == "manual"


def test_scores_on_what_settings_were_chosen_by_are_no_evidence(
    registry: Registry, make: Maker, bot: Version, held_out: Version, tmp_path: Path
) -> None:
    """Unless the gate asks for just that part."""
    guard(registry)
    report = write_report(tmp_path / "chosen", bot.digest, held_out.digest, 0.99) / "report.json"
    document = json.loads(report.read_text())
    document["dataset"]["split"] = "validation"
    report.write_text(json.dumps(document))
    parents = [Parent(bot.ref, Role.SUBJECT), Parent(held_out.ref, Role.HELD_OUT)]
    make.publish("chosen", report.parent, "report", parents=parents, by=running(registry, "evaluate")[0])
    with pytest.raises(GateFailed, match="has not measured accuracy"):
        registry.promotions.promote(bot.ref, "production")
    guard(registry, evaluator="evaluate:validation")
    assert registry.promotions.promote(bot.ref, "production").generation == 1


def test_a_gate_that_asks_for_an_approval_lets_only_the_approved_content_become_the_alias(
    registry: Registry, make: Maker, bot: Version
) -> None:
    deploy(registry, Gate("second-pair-of-eyes", "bot", "production", Approved(role="promoter")))
    make.adapter("bot")
    with pytest.raises(GateFailed, match="no promoter or above has approved bot:v1") as refusal:
        registry.promotions.promote("bot:v1", "production")
    assert refusal.value.remedy == "Run: podium approve bot:v1 production"
    registry.identity.approve("bot:v1", "staging")
    registry.identity.approve("bot:v2", "production")
    with pytest.raises(GateFailed):
        registry.promotions.promote("bot:v1", "production")
    registry.identity.approve("bot:v1", "production", reason="read the samples")
    (verdict,) = registry.promotions.promote("bot:v1", "production").verdicts
    assert verdict.passed
    assert "read the samples" in verdict.reason
