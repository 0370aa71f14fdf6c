"""What gates say of evidence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from registry.errors import InvalidApp, InvalidReference
from registry.gates import Approved, BetterThanBase, BetterThanIncumbent, Gate, Rule, Threshold
from registry.gates.judging import Evidence, Measured, UnderWay, judge
from registry.gates.wording import advice, summary, verdict_lines
from registry.identity.roles import TeamRole
from registry.identity.tokens import Approval
from registry.values import Score, Verdict

ON = "held-out:v1"


def measured(
    value: float,
    *,
    base: float | None = None,
    higher: bool = True,
    examples: Mapping[str, float] | None = None,
    report: str = "scores:v2",
) -> Measured:
    return Measured(report, Score("accuracy", value, higher, base), examples or {})


def verdict(rule: Rule, candidate: Measured | None, incumbent: Measured | None = None) -> Verdict:
    gate = Gate("good", "bot", "production", rule)
    return judge(gate, Evidence("bot:v2", candidate, "bot:v1" if incumbent else None, incumbent), revision=3)


@pytest.mark.parametrize(
    ("at_least", "at_most", "value", "passes"),
    [
        (0.8, None, 0.8, True),
        (0.8, None, 0.79, False),
        (None, 0.5, 0.5, True),
        (None, 0.5, 0.51, False),
        (0.2, 0.4, 0.3, True),
        (0.2, 0.4, 0.1, False),
        (0.2, 0.4, 0.5, False),
        (0, None, -0.1, False),
    ],
)
def test_a_threshold_includes_its_bounds(
    at_least: float | None, at_most: float | None, value: float, passes: bool
) -> None:
    rule = Threshold(metric="accuracy", on=ON, at_least=at_least, at_most=at_most)
    assert verdict(rule, measured(value)).passed is passes


def test_a_failed_threshold_says_what_is_and_what_is_needed() -> None:
    found = verdict(Threshold(metric="accuracy", on=ON, at_least=0.8), measured(0.75))
    assert found.reason == "accuracy is 0.75, needs at least 0.8"
    assert found.rule == "accuracy >= 0.8 on held-out:v1"
    assert (found.evidence, found.revision, found.measured) == (("scores:v2",), 3, {"value": 0.75})


@pytest.mark.parametrize(
    ("value", "base", "higher", "by", "passes"),
    [
        (0.6, 0.5, True, 0.0, True),
        (0.5, 0.5, True, 0.0, False),
        (0.4, 0.5, True, 0.0, False),
        (0.4, 0.5, False, 0.0, True),
        (0.6, 0.5, False, 0.0, False),
        (0.55, 0.5, True, 0.1, False),
        (0.75, 0.5, True, 0.25, True),
    ],
)
def test_better_than_base_goes_in_the_good_direction_of_the_metric(
    value: float, base: float, higher: bool, by: float, passes: bool
) -> None:
    rule = BetterThanBase(metric="accuracy", on=ON, by=by)
    assert verdict(rule, measured(value, base=base, higher=higher)).passed is passes


def test_better_than_base_needs_the_bases_score_in_the_same_report() -> None:
    found = verdict(BetterThanBase(metric="accuracy", on=ON), measured(0.9))
    assert not found.passed
    assert "does not say the base model's accuracy" in found.reason


@pytest.mark.parametrize(
    "rule",
    [
        Threshold(metric="accuracy", on=ON, at_least=0.0),
        BetterThanBase(metric="accuracy", on=ON),
        BetterThanIncumbent(metric="accuracy", on=ON),
    ],
)
def test_without_evidence_a_gate_fails_and_says_how_to_make_some(rule: Rule) -> None:
    found = verdict(rule, None)
    assert not found.passed
    assert (found.unmeasured, found.remedy) == ("bot:v2", "podium evaluate bot:v2 --on held-out:v1")
    assert (found.evidence, found.run) == ((), None)


@pytest.mark.parametrize(
    ("evaluator", "command"),
    [
        ("evaluate:validation", "podium evaluate bot:v2 --on held-out:v1 --split validation"),
        ("manual", "podium push NAME FOLDER --kind report --of bot:v2 --on held-out:v1"),
        ("judge.py:judge", "podium run judge.py:judge"),
    ],
)
def test_evidence_is_made_by_the_evaluator_that_the_gate_names(evaluator: str, command: str) -> None:
    rule = Threshold(metric="accuracy", on=ON, at_least=0.0)
    found = judge(Gate("good", "bot", "production", rule, evaluator), Evidence("bot:v2", None))
    assert found.remedy == command


def test_a_run_that_measures_it_now_is_named_instead_of_another_being_advised() -> None:
    gate = Gate("good", "bot", "production", BetterThanIncumbent(metric="accuracy", on=ON))
    candidate = judge(gate, Evidence("bot:v2", UnderWay("abc", "queued")))
    incumbent = judge(gate, Evidence("bot:v2", measured(0.9), "bot:v1", UnderWay("def", "running")))
    assert (candidate.passed, candidate.unmeasured, candidate.run) == (False, "bot:v2", "abc")
    assert (incumbent.passed, incumbent.unmeasured, incumbent.run) == (False, "bot:v1", "def")
    for found in (candidate, incumbent):
        assert "podium evaluate" not in found.reason + found.remedy
        assert found.run is not None and found.run in found.reason
    assert advice([candidate, incumbent], "bot:v2 production") == (
        "Wait for what is measured now: podium promote bot:v2 production --wait evidence"
    )


def test_a_run_that_was_to_measure_it_and_failed_is_named_and_another_is_advised() -> None:
    rule = Threshold(metric="accuracy", on=ON, at_least=0.0)
    ended = UnderWay("abc", "failed", "OOMError: 3 GiB were wanted")
    found = judge(Gate("good", "bot", "production", rule), Evidence("bot:v2", ended))
    assert (found.run, found.failed) == (None, "abc")
    assert "run abc was to measure accuracy" in found.reason and "OOMError: 3 GiB" in found.reason
    assert advice([found], "bot:v2 production") == "Run: podium evaluate bot:v2 --on held-out:v1"


def test_what_to_do_about_several_gates_is_said_once() -> None:
    rules = (Threshold(metric="accuracy", on=ON, at_least=0.0), BetterThanBase(metric="accuracy", on=ON))
    found = [verdict(rule, None) for rule in rules]
    assert summary(found) == "2 of 2 gates say no"
    assert advice(found, "bot:v2 production") == "Run: podium evaluate bot:v2 --on held-out:v1"
    assert len(verdict_lines(found)) == 2


def test_a_line_has_the_name_the_figure_what_is_wanted_and_the_evidence() -> None:
    rule = Threshold(metric="accuracy", on=ON, at_least=0.8)
    (line,) = verdict_lines([verdict(rule, measured(0.9, report="0123456789abcdef0123456789abcdef"))])
    assert line == "  passed   good  accuracy is 0.9, needs at least 0.8  (0123456789ab)"


def scores(*values: float) -> dict[str, float]:
    return {str(number): value for number, value in enumerate(values)}


def against(
    new: Mapping[str, float], old: Mapping[str, float], *, higher: bool = True, tolerance: float = 0.0
) -> Verdict:
    def mean(of: Mapping[str, float]) -> float:
        return sum(of.values()) / max(1, len(of))

    rule = BetterThanIncumbent(metric="accuracy", on=ON, tolerance=tolerance)
    return verdict(
        rule,
        measured(mean(new), higher=higher, examples=new),
        measured(mean(old), higher=higher, examples=old, report="scores:v1"),
    )


def test_a_new_alias_has_no_incumbent_to_beat() -> None:
    assert verdict(BetterThanIncumbent(metric="accuracy", on=ON), measured(0.1)).passed


def test_better_on_nearly_every_example_is_better() -> None:
    found = against(scores(*[1.0] * 40), scores(*[0.0] * 30, *[1.0] * 10))
    assert found.passed
    assert found.evidence == ("scores:v2", "scores:v1")
    assert found.measured["n"] == 40


def test_better_by_chance_is_not_enough() -> None:
    found = against(scores(*[1.0] * 21, *[0.0] * 19), scores(*[0.0] * 20, *[1.0] * 20))
    assert not found.passed
    assert "needs more than 0" in found.reason


def test_the_same_scores_are_no_gain_but_within_any_tolerance() -> None:
    same = scores(*[1.0, 0.0] * 20)
    assert not against(same, same).passed
    assert against(same, same, tolerance=0.01).passed


def test_a_tolerance_allows_to_be_a_little_worse_and_no_more() -> None:
    old = scores(*[1.0] * 100)
    slightly, much = scores(*[1.0] * 99, 0.0), scores(*[1.0] * 80, *[0.0] * 20)
    assert against(slightly, old, tolerance=0.05).passed
    assert not against(much, old, tolerance=0.05).passed


def test_too_few_examples_cannot_make_anybody_sure() -> None:
    found = against(scores(1.0, 1.0, 1.0, 1.0), scores(0.0, 0.0, 0.0, 0.0))
    assert not found.passed
    assert "4 examples in common; at least 5 are needed to be 95% sure" in found.reason
    assert against(scores(*[1.0] * 5), scores(*[0.0] * 5)).passed


def test_lower_is_better_turns_the_comparison_around() -> None:
    worse, better = scores(*[1.0] * 40), scores(*[0.0] * 40)
    assert against(better, worse, higher=False).passed
    assert not against(worse, better, higher=False).passed


def test_only_examples_that_both_reports_have_are_paired() -> None:
    new = {**scores(*[1.0] * 30), "only-new": 0.0}
    old = {**scores(*[0.0] * 30), "only-old": 1.0}
    assert against(new, old).measured["n"] == 30


def test_reports_without_a_common_example_cannot_be_paired() -> None:
    found = against({"a": 1.0}, {"b": 0.0})
    assert not found.passed
    assert "no example in common" in found.reason


def test_an_incumbent_that_was_not_evaluated_is_what_is_missing() -> None:
    rule = BetterThanIncumbent(metric="accuracy", on=ON)
    found = judge(Gate("good", "bot", "production", rule), Evidence("bot:v2", measured(0.9), "bot:v1", None))
    assert not found.passed
    assert "podium evaluate bot:v1" in found.remedy


@pytest.mark.parametrize(
    "rule",
    [
        Threshold(metric="accuracy", on=ON, at_least=0.5, at_most=0.9),
        BetterThanBase(metric="loss", on=ON, by=0.1),
        BetterThanIncumbent(metric="accuracy", on=ON, tolerance=0.05, confidence=0.9),
    ],
)
def test_a_gate_is_read_back_from_json_as_it_was(rule: Rule) -> None:
    gate = Gate("good", "bot-*", "production", rule, evaluator="my-eval")
    assert Gate.from_json("good", gate.to_json()) == gate


@pytest.mark.parametrize(
    "rule",
    [
        Threshold(metric="accuracy", on=ON),
        BetterThanBase(metric="accuracy", on=ON, by=-0.1),
        BetterThanIncumbent(metric="accuracy", on=ON, tolerance=-1),
        BetterThanIncumbent(metric="accuracy", on=ON, confidence=1.0),
        BetterThanIncumbent(metric="accuracy", on=ON, confidence=0.2),
    ],
)
def test_a_rule_without_sense_is_refused_when_it_is_declared(rule: Rule) -> None:
    with pytest.raises(InvalidApp):
        Gate("good", "bot", "production", rule)


@pytest.mark.parametrize(
    ("alias", "on"), [("v7", ON), ("latest", ON), ("production", "held-out"), ("production", "Held")]
)
def test_a_gate_names_an_alias_and_an_explicit_held_out_set(alias: str, on: str) -> None:
    with pytest.raises(InvalidReference):
        Gate("good", "bot", alias, Threshold(metric="accuracy", on=on, at_least=0.5))


def test_a_gate_guards_the_artifacts_that_its_glob_matches() -> None:
    gate = Gate("good", "support-*", "production", Threshold(metric="accuracy", on=ON, at_least=0.5))
    assert gate.guards("support-bot")
    assert not gate.guards("sales-bot")


@pytest.mark.parametrize(
    ("needed", "given", "passes"),
    [
        ("promoter", [TeamRole.PROMOTER], True),
        ("promoter", [TeamRole.TRAINER, TeamRole.ADMIN], True),
        ("admin", [TeamRole.PROMOTER], False),
        ("promoter", [], False),
    ],
)
def test_an_approval_counts_from_the_role_upwards(needed: str, given: list[TeamRole], passes: bool) -> None:
    now = datetime.now(UTC)
    approvals = tuple(
        Approval("bot", "production", 2, "sha256:0", f"user:{role}", role, "", now) for role in given
    )
    gate = Gate("seen", "bot", "production", Approved(role=needed))
    found = judge(gate, Evidence("bot:v2", None, approvals=approvals), revision=1)
    assert found.passed is passes


def test_a_role_that_there_is_not_cannot_be_asked_to_approve() -> None:
    with pytest.raises(InvalidApp, match="not a role that can approve"):
        Gate("seen", "bot", "production", Approved(role="boss"))


def test_a_gate_that_asks_for_an_approval_is_stored_and_read_back() -> None:
    gate = Gate("seen", "bot", "production", Approved(role="admin"))
    assert Gate.from_json("seen", gate.to_json()) == gate
