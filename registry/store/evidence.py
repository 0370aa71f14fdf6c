"""Evidence: the scores of published reports, and gathering them for gates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.gates.judging import Evidence, Measured, UnderWay, judge
from registry.gates.rules import Approved, BetterThanIncumbent, Gate, Measuring
from registry.identity.roles import TeamRole
from registry.identity.tokens import Approval
from registry.references import Reference
from registry.reports import HELD_OUT, evaluator_name
from registry.store import rows
from registry.store.session import Session
from registry.values import Evaluation, Score, Verdict

_SHOWN = 120  # characters of an error in a verdict

_GATES = sql(
    "SELECT name, body, revision FROM app_object WHERE kind = 'gate' AND target = :alias ORDER BY name"
)
_NEWEST = sql("""
    SELECT evaluation.id, evaluation.report, score.value, score.base, score.higher_is_better, score.n
    FROM evaluation JOIN score ON score.evaluation_id = evaluation.id AND score.metric = :metric
    WHERE evaluation.subject_digest = :subject AND evaluation.dataset_digest = :dataset
      AND evaluation.evaluator = :evaluator
    ORDER BY evaluation.id DESC LIMIT 1
""")
_EXAMPLES = sql("""
    SELECT scores FROM example_score WHERE evaluation_id = :id AND metric = :metric AND subject = 'tuned'
""")
_LAST_EVALUATION = sql("""
    SELECT COALESCE(MAX(id), 0) FROM evaluation WHERE subject_digest IN (:candidate, :incumbent)
""")
_APPROVALS = sql("""
    SELECT artifact, alias, version, digest, actor, role, reason, at FROM approval
    WHERE digest = :digest ORDER BY id DESC
""")
_OF_SUBJECT = sql("""
    SELECT id, report, subject_digest, dataset_digest, evaluator, at FROM evaluation
    WHERE subject_digest = :digest AND (CAST(:dataset AS TEXT) IS NULL OR dataset_digest = :dataset)
    ORDER BY id DESC
""")
# Whatever roles the inputs have: a trigger, which asks by the task's name, knows none.
_UNDER_WAY = sql("""
    SELECT run.id, run.state, run.task, run.arguments, run.error FROM run
    JOIN run_input judged ON judged.run = run.id
    JOIN run_input data ON data.run = run.id
    JOIN value judged_value ON judged_value.id = judged.value AND judged_value.digest = :subject
    JOIN value data_value ON data_value.id = data.value AND data_value.digest = :dataset
    WHERE run.state <> 'succeeded'
    ORDER BY CASE WHEN run.state IN ('queued', 'running') THEN 0 ELSE 1 END, run.queued_at DESC, run.id
""")
_SCORES = sql(
    "SELECT metric, value, higher_is_better, base, n FROM score WHERE evaluation_id = :id ORDER BY metric"
)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a judgement stood on. A promotion whose basis has changed since is judged again."""

    gates: tuple[tuple[Gate, int], ...]  # every gate of the alias as it was, with its revision
    incumbent: str | None  # digest that the alias held
    last_evaluation: int  # newest evaluation of candidate or incumbent


@dataclass(frozen=True, slots=True)
class Subject:
    """A version on the scales."""

    ref: str
    digest: str


def gates_of(reader: Transaction, artifact: str, alias: str) -> list[tuple[Gate, int]]:
    """The gates of an alias with their revisions."""
    found = [
        (Gate.from_json(name, json.loads(body)), revision)
        for name, body, revision in reader.all(_GATES, alias=alias)
    ]
    return [(gate, revision) for gate, revision in found if gate.guards(artifact)]


def basis(
    reader: Transaction, gates: list[tuple[Gate, int]], candidate: Subject, incumbent: Subject | None
) -> Basis:
    """The state of everything that a verdict depends on."""
    if not gates:
        return Basis((), incumbent.digest if incumbent else None, 0)
    held = incumbent.digest if incumbent else ""
    last = reader.one(_LAST_EVALUATION, candidate=candidate.digest, incumbent=held)[0]
    return Basis(tuple(gates), incumbent.digest if incumbent else None, last)


def judge_all(
    reader: Transaction, gates: list[tuple[Gate, int]], candidate: Subject, incumbent: Subject | None
) -> list[Verdict]:
    return [judge(gate, _gather(reader, gate, candidate, incumbent), revision) for gate, revision in gates]


def _gather(reader: Transaction, gate: Gate, candidate: Subject, incumbent: Subject | None) -> Evidence:
    rule = gate.rule
    if isinstance(rule, Approved):
        place = (Reference.parse(candidate.ref).name, gate.alias)
        given = [a for a in approvals_of(reader, candidate.digest) if (a.artifact, a.alias) == place]
        return Evidence(candidate.ref, None, approvals=tuple(given))
    dataset: str = rows.require(reader, Reference.parse(rule.on))[5]
    paired = isinstance(rule, BetterThanIncumbent)

    def measured(digest: str) -> Measured | UnderWay | None:
        found = _measured(reader, rule, gate.evaluator, digest, dataset, paired)
        return found or _under_way(reader, gate.evaluator, digest, dataset)

    return Evidence(
        candidate.ref,
        measured(candidate.digest),
        incumbent.ref if incumbent else None,
        measured(incumbent.digest) if incumbent and paired else None,
    )


def approvals_of(reader: Transaction, digest: str) -> list[Approval]:
    """Who has said of a content that it may become an alias, newest first."""
    return [_approval(row) for row in reader.all(_APPROVALS, digest=digest)]


def _approval(row: Row) -> Approval:
    artifact, alias, version, digest, actor, role, reason, at = row
    return Approval(artifact, alias, version, digest, actor, TeamRole(role), reason, to_time(at))


def _measured(
    reader: Transaction, rule: Measuring, evaluator: str, digest: str, dataset: str, examples: bool
) -> Measured | None:
    row = reader.first(_NEWEST, metric=rule.metric, subject=digest, dataset=dataset, evaluator=evaluator)
    if row is None:
        return None
    (evaluation, report, value, base, higher, n) = row
    per_example = reader.first(_EXAMPLES, id=evaluation, metric=rule.metric) if examples else None
    return Measured(
        _report_name(reader, report),
        Score(rule.metric, value, bool(higher), base, n),
        json.loads(per_example[0]) if per_example else {},
    )


def _under_way(reader: Transaction, evaluator: str, subject: str, dataset: str) -> UnderWay | None:
    """A run that makes such evidence now; or else the newest that was to, and came to nothing."""
    for run, state, task, arguments, error in reader.all(_UNDER_WAY, subject=subject, dataset=dataset):
        if evaluator_name(task, json.loads(arguments).get("split", HELD_OUT)) == evaluator:
            return UnderWay(run, _ended(state), _said(json.loads(error)) if error else "")
    return None


def _ended(state: str) -> str:
    return f"was {state}" if state in ("cancelled", "interrupted") else state


def _said(error: Mapping[str, Any]) -> str:
    """What a run failed of, short enough for a line that says more."""
    return f"{error['type']}: {error['message']}".splitlines()[0][:_SHOWN]


def _report_name(reader: Transaction, value: str) -> str:
    named = rows.naming_value(reader, value)
    return f"{named[0][2]}:v{named[0][3]}" if named else value


class StoredEvaluations:
    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, digest: str, *, dataset_digest: str | None = None) -> list[Evaluation]:
        with self._session.reading() as reader:
            found = reader.all(_OF_SUBJECT, digest=digest, dataset=dataset_digest)
            return [_evaluation(reader, row) for row in found]


def _evaluation(reader: Transaction, row: Row) -> Evaluation:
    (id, report, subject, dataset, evaluator, at) = row
    scores = {
        metric: Score(metric, value, bool(higher), base, n)
        for metric, value, higher, base, n in reader.all(_SCORES, id=id)
    }
    return Evaluation(_report_name(reader, report), subject, dataset, evaluator, to_time(at), scores)
