"""Recording a report's scores beside the report, in the transaction that publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.errors import EvidenceMismatch
from registry.events import EvaluationRecorded, EventType
from registry.gates.rules import MANUAL
from registry.reports import Report, evaluator_name
from registry.store import rows
from registry.store.session import Session, to_json
from registry.store.values import FoundParent
from registry.values import Role

_PUT_EVALUATION = sql("""
    INSERT INTO evaluation (report, subject_digest, dataset_digest, evaluator, at)
    VALUES (:report, :subject, :dataset, :evaluator, :now) RETURNING id
""")
_PUT_SCORE = sql("""
    INSERT INTO score (evaluation_id, metric, value, base, higher_is_better, n)
    VALUES (:evaluation, :metric, :value, :base, :higher, :n)
""")
_PUT_EXAMPLES = sql("""
    INSERT INTO example_score (evaluation_id, metric, subject, scores)
    VALUES (:evaluation, :metric, :subject, :scores)
""")
_DATASET = sql("SELECT 1 FROM value WHERE digest = :digest AND kind = 'dataset' LIMIT 1")
_SUBJECT = sql("SELECT 1 FROM value WHERE digest = :digest AND kind IN ('adapter', 'model') LIMIT 1")
_TASK = sql("SELECT task FROM run WHERE id = :run")


def check_judged(reader: Transaction, report: Report, parents: Sequence[FoundParent]) -> None:
    """Check that a report judges what it is published for.

    Raises:
        EvidenceMismatch: it judges another version or another held-out set, or one that is not here.
    """
    document = report.document
    for role, digest in ((Role.SUBJECT, document.subject.digest), (Role.HELD_OUT, document.dataset.digest)):
        for parent in parents:
            if parent.role is role and parent.digest != digest:
                raise EvidenceMismatch(
                    f"The report judges {_what(role)} {digest}, but is published for {parent.digest}.",
                    remedy="Evaluate the version that you mean, or name the one that was evaluated.",
                )
    if reader.first(_SUBJECT, digest=document.subject.digest) is None:
        raise EvidenceMismatch(
            f"The report judges {document.subject.digest}, which no version here has.",
            remedy="Push the adapter or model that it judges first.",
        )
    if reader.first(_DATASET, digest=document.dataset.digest) is None:
        raise EvidenceMismatch(
            f"The report was made on the data {document.dataset.digest}, which no data set here has.",
            remedy="Push the held-out set that it was made on first.",
        )


def _what(role: Role) -> str:
    return "the version" if role is Role.SUBJECT else "the held-out set"


def evaluator_of(reader: Transaction, session: Session, run: str | None = None) -> str:
    """The task whose evidence a report is: that of the run with whose authority it is written."""
    if run is None:
        authority = session.origin.authority
        prefix, _, run = authority.lease.partition("/") if authority else ("", "", "")
        if prefix != "run":
            return MANUAL
    row = reader.first(_TASK, run=run)
    return str(row[0]) if row else MANUAL


def record_evaluation(
    transaction: Transaction, session: Session, report: Report, value: str, ref: str | None, evaluator: str
) -> None:
    """Keep the scores, also by example, and say so by an event."""
    document = report.document
    evaluator = evaluator_name(evaluator, document.dataset.split)
    (evaluation,) = transaction.one(
        _PUT_EVALUATION,
        report=value,
        subject=document.subject.digest,
        dataset=document.dataset.digest,
        evaluator=evaluator,
        now=session.now(),
    )
    _put_scores(transaction, evaluation, report)
    judged = rows.with_digest(transaction, document.subject.digest)
    artifact, version = (judged[0][2], judged[0][3]) if judged else (None, None)
    data = EvaluationRecorded(
        report=ref or value,
        artifact=artifact,
        version=version,
        subject_digest=document.subject.digest,
        dataset_digest=document.dataset.digest,
        evaluator=evaluator,
        scores={name: metric.value for name, metric in document.metrics.items()},
    )
    subject = f"{artifact}:v{version}" if artifact else document.subject.digest
    session.emit(transaction, EventType.EVALUATION_RECORDED, data, subject=subject, key=artifact or subject)


def _put_scores(transaction: Transaction, evaluation: int, report: Report) -> None:
    for name, metric in report.document.metrics.items():
        transaction.execute(
            _PUT_SCORE,
            evaluation=evaluation,
            metric=name,
            value=metric.value,
            base=metric.base,
            higher=metric.higher_is_better,
            n=metric.n,
        )
        for subject, scores in (("tuned", report.tuned.get(name)), ("base", report.base.get(name))):
            if scores:
                transaction.execute(
                    _PUT_EXAMPLES,
                    evaluation=evaluation,
                    metric=name,
                    subject=subject,
                    scores=to_json(dict(scores)),
                )
