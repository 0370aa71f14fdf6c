"""Every event podium emits: its name and what it says.

An event is a fact in the past tense, written in the transaction that made it true. ``Data`` models are what
stands in an event's ``data``; readers must ignore fields they do not know, so fields are only ever added.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class EventType(StrEnum):
    VERSION_PUBLISHED = "podium.version.published"
    ALIAS_PROMOTED = "podium.alias.promoted"
    ALIAS_ROLLED_BACK = "podium.alias.rolledback"
    ALIAS_RELEASED = "podium.alias.released"
    PROMOTION_REFUSED = "podium.promotion.refused"
    EVALUATION_RECORDED = "podium.evaluation.recorded"
    RUN_QUEUED = "podium.run.queued"
    RUN_STARTED = "podium.run.started"
    RUN_SUCCEEDED = "podium.run.succeeded"
    RUN_FAILED = "podium.run.failed"
    RUN_INTERRUPTED = "podium.run.interrupted"
    RUN_CANCELLED = "podium.run.cancelled"
    ROLLOUT_STARTED = "podium.rollout.started"
    ROLLOUT_LIVE = "podium.rollout.live"
    ROLLOUT_FAILED = "podium.rollout.failed"
    ROLLOUT_REVERTED = "podium.rollout.reverted"
    ROLLOUT_SUPERSEDED = "podium.rollout.superseded"
    DEPLOYMENT_PAUSED = "podium.deployment.paused"
    DEPLOYMENT_RESUMED = "podium.deployment.resumed"
    DEPLOYMENT_RESTARTED = "podium.deployment.restarted"
    DEPLOYMENT_UNBLOCKED = "podium.deployment.unblocked"
    DEPLOYMENT_REKEYED = "podium.deployment.rekeyed"


class Data(BaseModel):
    """Base of all event data."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class VersionPublished(Data):
    artifact: str
    version: int
    kind: str
    digest: str
    size: int  # bytes
    run: str | None = None
    tags: dict[str, str] = {}


class AliasMoved(Data):
    """Data of `ALIAS_PROMOTED` and `ALIAS_ROLLED_BACK`."""

    artifact: str
    kind: str
    alias: str
    from_version: int | None
    to_version: int
    to_digest: str
    generation: int
    action: str
    reason: str = ""


class AliasReleased(Data):
    artifact: str
    alias: str


class PromotionRefused(Data):
    artifact: str
    alias: str
    version: int
    error: str  # code of the error, such as "gate_failed"
    message: str
    verdicts: list[dict[str, Any]] = []


class EvaluationRecorded(Data):
    report: str  # reference of the report, or id of its value
    artifact: str | None  # an artifact that holds the subject
    version: int | None
    subject_digest: str
    dataset_digest: str
    evaluator: str
    scores: dict[str, float]


class RunChanged(Data):
    """Data of all run events."""

    run: str
    task: str
    state: str
    attempt: int = 0
    cause: str | None = None
    error: str | None = None
    outputs: dict[str, str] = {}  # output name -> reference or value id


class RolloutChanged(Data):
    """Data of all rollout events."""

    deployment: str
    served: str
    artifact: str
    alias: str | None
    version: int
    generation: int
    reason: str = ""
    seconds: float | None = None  # since the promotion


class DeploymentTold(Data):
    """Data of all deployment events: what a person told a deployment."""

    deployment: str
    reason: str = ""
    digest: str | None = None  # of what was unblocked
    key: str | None = None  # id of the key that was added or revoked; None: all of them


DATA: dict[EventType, type[Data]] = {
    EventType.VERSION_PUBLISHED: VersionPublished,
    EventType.ALIAS_PROMOTED: AliasMoved,
    EventType.ALIAS_ROLLED_BACK: AliasMoved,
    EventType.ALIAS_RELEASED: AliasReleased,
    EventType.PROMOTION_REFUSED: PromotionRefused,
    EventType.EVALUATION_RECORDED: EvaluationRecorded,
    **{t: RunChanged for t in EventType if t.startswith("podium.run.")},
    **{t: RolloutChanged for t in EventType if t.startswith("podium.rollout.")},
    **{t: DeploymentTold for t in EventType if t.startswith("podium.deployment.")},
}
