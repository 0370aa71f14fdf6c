"""The values that the registry gives out: frozen, without behaviour, the same over any front door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Action(StrEnum):
    """Why an alias moved."""

    PROMOTE = "promote"  # somebody, or a trigger, asked for this version
    ROLLBACK = "rollback"  # a person went back to a version that was live
    REVERT = "revert"  # serving could not bring the version live and put the alias back


class Role(StrEnum):
    """What a parent was to the version made from it."""

    BASE = "base"  # base weights
    DATA = "data"  # training data
    SUBJECT = "subject"  # what a report judges
    HELD_OUT = "held-out"  # the data a report judges on
    CODE = "code"  # the bundle that ran
    PARENT = "parent"  # anything else it was made from


class Access(StrEnum):
    """What a delivery subscription does with events it has not handled when newer ones come."""

    EACH = "each"  # handle every one, in order
    LATEST = "latest"  # handle the newest of each artifact; older ones are superseded


@dataclass(frozen=True, slots=True)
class Origin:
    """On whose behalf a write happens; it is recorded with everything written."""

    actor: str  # "user:ada", "run:<id>", "trigger:<app>/<name>", "system:serving"
    authority: Authority | None = None  # the lease that must still stand when the write commits
    causation: str | None = None  # id of the event that led to it
    correlation: str | None = None  # id shared by all that follows from one first cause


@dataclass(frozen=True, slots=True)
class Authority:
    """The right to write as the holder of a lease, good until another epoch begins."""

    lease: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Who does a piece of work now. A new holder gets a higher epoch; the holder alone raises the beat."""

    name: str  # "relay", "controller/router", "run/<id>", "delivery/<id>"
    holder: str
    epoch: int
    beat: int

    @property
    def authority(self) -> Authority:
        return Authority(self.name, self.epoch)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A named series of versions of one kind."""

    name: str
    kind: str
    versions: int  # how many are there now
    newest: int | None  # the highest version number
    aliases: Mapping[str, int]  # alias -> version number
    created_at: datetime
    bytes_total: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """Immutable content under an artifact."""

    artifact: str
    number: int
    kind: str
    digest: str  # "sha256:..."
    size: int  # bytes
    files: int
    created_at: datetime
    created_by: str  # actor
    value: str  # id of the value it names, the node of lineage
    run: str | None = None  # the run that made it
    aliases: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        return f"{self.artifact}:v{self.number}"


@dataclass(frozen=True, slots=True)
class Parent:
    """A lineage edge to be recorded: what the new value was made from, and what that was to it."""

    reference: str  # a reference, or the id of a value
    role: Role


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of a publish."""

    version: Version
    created: bool  # False: the same content was there already
    bytes_total: int = 0
    bytes_sent: int = 0
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """Content that is in the store and that no value or version refers to yet."""

    kind: str
    digest: str
    bytes_total: int
    bytes_sent: int
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alias:
    """What should be live under a name."""

    artifact: str
    name: str
    version: int
    digest: str
    generation: int
    moved_at: datetime
    held_by: str | None = None  # actor of the rollback that put the hold
    hold_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate said, and on which evidence."""

    gate: str
    rule: str  # the rule in words
    passed: bool
    reason: str  # numbers and what would satisfy it
    evidence: tuple[str, ...] = ()  # references of the reports that were judged
    revision: int = 0  # revision of the gate
    measured: Mapping[str, Any] = field(default_factory=dict)
    unmeasured: str | None = None  # the version that the gate's evaluator has not measured yet
    run: str | None = None  # the run that measures it now
    failed: str | None = None  # or else the newest run that was to measure it, and came to nothing
    remedy: str = ""  # the command that would make the evidence it lacks


@dataclass(frozen=True, slots=True)
class Promotion:
    """One row of an alias's history."""

    artifact: str
    alias: str
    generation: int
    action: Action
    from_version: int | None
    to_version: int
    to_digest: str
    actor: str
    reason: str
    at: datetime
    event: str  # id of the event
    verdicts: tuple[Verdict, ...] = ()
    changed: bool = True  # False: the alias was there already, nothing was written

    def to_dict(self) -> dict[str, Any]:
        """The row as it is printed with ``--json``."""
        return {
            "artifact": self.artifact,
            "alias": self.alias,
            "from": None if self.from_version is None else f"v{self.from_version}",
            "to": f"v{self.to_version}",
            "generation": self.generation,
            "action": self.action.value,
            "actor": self.actor,
            "reason": self.reason,
            "at": self.at.isoformat(),
            "changed": self.changed,
            "verdicts": [
                {
                    "gate": v.gate,
                    "rule": v.rule,
                    "passed": v.passed,
                    "reason": v.reason,
                    "evidence": list(v.evidence),
                    "measured": dict(v.measured),
                }
                for v in self.verdicts
            ],
        }


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A value in the lineage graph, with the versions that name it."""

    value: str
    kind: str
    digest: str
    refs: tuple[str, ...]
    run: str | None
    depth: int  # steps from where the walk began


@dataclass(frozen=True, slots=True)
class LineageEdge:
    child: str  # value ids
    parent: str
    role: Role


@dataclass(frozen=True, slots=True)
class LineageGraph:
    root: str
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A fact in the past tense, as it stands in the outbox."""

    sequence: int  # order of commit, without gaps
    id: str
    type: str  # a member of registry.events.EventType
    subject: str  # "support-bot:v7", "support-bot:production", "run/<id>"
    key: str  # what it is ordered by: the artifact's name, or the subject
    at: datetime
    actor: str
    data: Mapping[str, Any]
    causation: str | None = None
    correlation: str | None = None
    traceparent: str | None = None
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far the outbox has been copied to the stream of an incarnation."""

    database_id: str
    incarnation: int
    relayed: int  # sequence of the last event known to be in the stream
    relayed_id: str | None  # its id
    newest: int  # sequence of the newest event in the outbox


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A published report's scores."""

    report: str  # reference of the report, or the id of its value
    subject_digest: str
    dataset_digest: str
    evaluator: str  # task that made it; "manual" when pushed by hand
    at: datetime
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True)
class Score:
    metric: str
    value: float
    higher_is_better: bool
    base: float | None = None  # the base model's score on the same data
    n: int | None = None  # examples


@dataclass(frozen=True, slots=True)
class AppObject:
    """One declared object of a deployed app."""

    app: str
    kind: str  # "gate", "trigger", "subscription", "deployment"
    name: str
    body: Mapping[str, Any]  # the declaration as plain JSON
    revision: int = 0  # raised at each change
    changed_at: datetime | None = None  # when it was deployed as it is; None before that


class ChangeKind(StrEnum):
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class AppChange:
    """One line of a deploy plan."""

    change: ChangeKind
    kind: str
    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
