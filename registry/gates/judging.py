"""Judging: rule and evidence in, verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from registry.gates.rules import (
    MANUAL,
    Approved,
    BetterThanBase,
    BetterThanIncumbent,
    Gate,
    Measuring,
    Threshold,
)
from registry.gates.statistics import fewest_pairs, paired_difference
from registry.identity.roles import TeamRole
from registry.identity.tokens import Approval
from registry.values import Score, Verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """What one report says of one version under one metric."""

    report: str  # reference of the report
    score: Score
    examples: Mapping[str, float] = field(default_factory=dict)  # held-out example id -> score


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A run that measures a version now; or the newest that was to, and came to nothing."""

    run: str
    state: str  # "queued" or "running"; else how it ended
    error: str = ""  # of one that came to nothing

    @property
    def has_failed(self) -> bool:
        return self.state not in ("queued", "running")


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a gate may look at. ``None``: the gate's evaluator has not judged that version on that set,
    and no run does so now."""

    candidate_ref: str
    candidate: Measured | UnderWay | None
    incumbent_ref: str | None = None  # None: the alias is new
    incumbent: Measured | UnderWay | None = None
    approvals: tuple[Approval, ...] = ()  # of the candidate's content for the alias, newest first


def judge(gate: Gate, evidence: Evidence, revision: int = 0) -> Verdict:
    """What ``gate`` says of the candidate."""
    rule = gate.rule
    if isinstance(rule, Approved):
        return _judge_approval(gate, rule, evidence, revision)
    if not isinstance(evidence.candidate, Measured):
        return _missing(gate, rule, evidence.candidate_ref, evidence.candidate, revision)
    if isinstance(rule, Threshold):
        return _judge_threshold(gate, rule, evidence.candidate, revision)
    if isinstance(rule, BetterThanBase):
        return _judge_against_base(gate, rule, evidence.candidate, revision)
    return _judge_against_incumbent(gate, rule, evidence, evidence.candidate, revision)


def _missing(gate: Gate, rule: Measuring, ref: str, under_way: UnderWay | None, revision: int) -> Verdict:
    what = f"{rule.metric} of {ref} on {rule.on}"
    run = failed = None
    remedy = _how_to_measure(gate.evaluator, ref, rule.on)
    if under_way is None:
        reason = f"'{gate.evaluator}' has not measured {what}"
    elif under_way.has_failed:
        failed = under_way.run
        why = f": {under_way.error}" if under_way.error else ""
        reason = f"run {failed} was to measure {what}, and {under_way.state}{why}"
    else:
        run = under_way.run
        reason, remedy = f"run {run} ({under_way.state}) measures {what}", f"podium runs wait {run}"
    said = rule.describe()
    return Verdict(
        gate.name, said, False, reason, (), revision, unmeasured=ref, run=run, failed=failed, remedy=remedy
    )


def _how_to_measure(evaluator: str, ref: str, on: str) -> str:
    """The command that makes the report that a gate asks for."""
    task, _, split = evaluator.partition(":")
    if task == "evaluate":
        return f"podium evaluate {ref} --on {on}" + (f" --split {split}" if split else "")
    if task == MANUAL:
        return f"podium push NAME FOLDER --kind report --of {ref} --on {on}"
    return f"podium run {evaluator}"


def _judge_approval(gate: Gate, rule: Approved, evidence: Evidence, revision: int) -> Verdict:
    for approval in evidence.approvals:
        if approval.role.covers(TeamRole(rule.role)):
            why = f": {approval.reason}" if approval.reason else ""
            reason = f"approved by {approval.actor} ({approval.role}){why}"
            return _verdict(gate, True, reason, (), revision, actor=approval.actor)
    ref = evidence.candidate_ref
    reason = f"no {rule.role} or above has approved {ref}"
    remedy = f"podium approve {ref} {gate.alias}"
    return Verdict(gate.name, rule.describe(), False, reason, (), revision, remedy=remedy)


def _verdict(
    gate: Gate, passed: bool, reason: str, evidence: tuple[str, ...], revision: int, **measured: Any
) -> Verdict:
    return Verdict(gate.name, gate.rule.describe(), passed, reason, evidence, revision, measured)


def _judge_threshold(gate: Gate, rule: Threshold, candidate: Measured, revision: int) -> Verdict:
    value = candidate.score.value
    low = rule.at_least is not None and value < rule.at_least
    high = rule.at_most is not None and value > rule.at_most
    bounds = [] if rule.at_least is None else [f"needs at least {rule.at_least:g}"]
    bounds += [] if rule.at_most is None else [f"may be at most {rule.at_most:g}"]
    reason = ", ".join([f"{rule.metric} is {value:.4g}", *bounds])
    return _verdict(gate, not (low or high), reason, (candidate.report,), revision, value=value)


def _judge_against_base(gate: Gate, rule: BetterThanBase, candidate: Measured, revision: int) -> Verdict:
    score = candidate.score
    if score.base is None:
        missing = f"{candidate.report} does not say the base model's {rule.metric}"
        reason = f"{missing}; evaluate base and version together"
        return _verdict(gate, False, reason, (candidate.report,), revision)
    gain = (score.value - score.base) * (1 if score.higher_is_better else -1)
    passed = gain > 0 and gain >= rule.by
    reason = (
        f"{rule.metric} is {score.value:.4g}, the base model's {score.base:.4g}; "
        f"needs to be better by {f'{rule.by:g}' if rule.by else 'more than 0'}"
    )
    return _verdict(gate, passed, reason, (candidate.report,), revision, value=score.value, base=score.base)


def _judge_against_incumbent(
    gate: Gate, rule: BetterThanIncumbent, evidence: Evidence, candidate: Measured, revision: int
) -> Verdict:
    if evidence.incumbent_ref is None:
        return _verdict(gate, True, "the alias is new: there is no incumbent", (candidate.report,), revision)
    incumbent = evidence.incumbent
    if not isinstance(incumbent, Measured):
        return _missing(gate, rule, evidence.incumbent_ref, incumbent, revision)
    reports = (candidate.report, incumbent.report)
    shared = sorted(candidate.examples.keys() & incumbent.examples.keys())
    if not shared:
        reason = "the two reports have no example in common; evaluate both with per-example results"
        return _verdict(gate, False, reason, reports, revision)
    fewest = fewest_pairs(rule.confidence)
    if len(shared) < fewest:
        reason = (
            f"the two reports have {len(shared)} examples in common; at least {fewest} are needed to be "
            f"{rule.confidence:.0%} sure"
        )
        return _verdict(gate, False, reason, reports, revision, n=len(shared))
    sign = 1 if candidate.score.higher_is_better else -1
    differences = [sign * (candidate.examples[i] - incumbent.examples[i]) for i in shared]
    found = paired_difference(differences, rule.confidence)
    passed = found.lower >= -rule.tolerance if rule.tolerance else found.lower > 0
    reason = (
        f"{rule.metric} is {candidate.score.value:.4g}, "
        f"{evidence.incumbent_ref} has {incumbent.score.value:.4g}; "
        f"paired gain {found.mean:+.4g}, at least {found.lower:+.4g} "
        f"with {rule.confidence:.0%} confidence (n={found.n}); "
        f"needs {f'at least {-rule.tolerance:+g}' if rule.tolerance else 'more than 0'}"
    )
    return _verdict(
        gate,
        passed,
        reason,
        reports,
        revision,
        value=candidate.score.value,
        incumbent=incumbent.score.value,
        gain=found.mean,
        lower=found.lower,
        n=found.n,
    )
