"""Gates as values: declared by a user, stored as JSON, read back for judging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any, ClassVar

from registry.errors import InvalidApp
from registry.identity.roles import TeamRole
from registry.references import Reference, check_alias, check_name

#: Evaluator of a report that no run made.
MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The metric must reach, or must not exceed, a value on a held-out set."""

    kind: ClassVar[str] = "threshold"
    metric: str
    on: str  # reference of the held-out set
    at_least: float | None = None
    at_most: float | None = None

    def describe(self) -> str:
        bounds = [f">= {self.at_least:g}" if self.at_least is not None else ""]
        bounds.append(f"<= {self.at_most:g}" if self.at_most is not None else "")
        return f"{self.metric} {' and '.join(b for b in bounds if b)} on {self.on}"

    def check(self) -> None:
        if self.at_least is None and self.at_most is None:
            raise InvalidApp(
                f"A threshold on '{self.metric}' has no bound.", remedy="Give it at_least= or at_most=."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterThanBase:
    """The metric must beat the base model's, measured in the same report, by at least ``by``."""

    kind: ClassVar[str] = "better-than-base"
    metric: str
    on: str
    by: float = 0.0

    def describe(self) -> str:
        by = f" by {self.by:g}" if self.by else ""
        return f"{self.metric} better than the base model's{by} on {self.on}"

    def check(self) -> None:
        if self.by < 0:
            raise InvalidApp(f"'by' of a gate on '{self.metric}' is negative.", remedy="Give 0 or more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterThanIncumbent:
    """No worse than the version that the alias holds, example by example, on the same held-out set.

    The lower bound of the mean paired difference (new less incumbent, in the metric's good direction), at the
    given one-sided confidence, must be at least ``-tolerance``: with 0 the new version must be better beyond
    chance, with 0.05 it must not be worse by more than five points. Where the alias is new it passes.
    """

    kind: ClassVar[str] = "better-than-incumbent"
    metric: str
    on: str
    tolerance: float = 0.0
    confidence: float = 0.95

    def describe(self) -> str:
        how = f"no more than {self.tolerance:g} worse than" if self.tolerance else "better than"
        return f"{self.metric} {how} the incumbent's on {self.on} ({self.confidence:.0%} sure, paired)"

    def check(self) -> None:
        if self.tolerance < 0 or not 0.5 <= self.confidence < 1:
            raise InvalidApp(
                f"A paired gate on '{self.metric}' has a tolerance or confidence out of range.",
                remedy="Give a tolerance of 0 or more and a confidence of 0.5 to 0.999.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """Somebody of the role, or of a higher one, has said that this content may become the alias."""

    kind: ClassVar[str] = "approved"
    role: str = TeamRole.PROMOTER.value

    def describe(self) -> str:
        return f"approved by a {self.role} or above"

    def check(self) -> None:
        if self.role not in list(TeamRole):
            known = ", ".join(TeamRole)
            raise InvalidApp(f"'{self.role}' is not a role that can approve.", remedy=f"Roles are {known}.")


Measuring = Threshold | BetterThanBase | BetterThanIncumbent
Rule = Measuring | Approved
_RULES: dict[str, type[Rule]] = {
    r.kind: r for r in (Threshold, BetterThanBase, BetterThanIncumbent, Approved)
}


def _check_numbers(rule: Measuring) -> None:
    """No score is below NaN: a gate with it would let everything pass."""
    for each in fields(rule):
        value = getattr(rule, each.name)
        if isinstance(value, float) and not isfinite(value):
            raise InvalidApp(
                f"'{each.name}' of a gate on '{rule.metric}' is {value}.", remedy="Give a number."
            )


@dataclass(frozen=True, slots=True)
class Gate:
    """A rule that promotions of an artifact to an alias must pass.

    ``artifact`` is a name or a glob. ``evaluator`` is the task whose reports count as evidence; a report
    pushed by hand counts only for a gate that says ``evaluator="manual"``. Only what it found on the
    held-out part of a data set counts, unless the gate names another: ``evaluator="evaluate:validation"``.
    """

    name: str
    artifact: str
    alias: str
    rule: Rule
    evaluator: str = "evaluate"

    deployable: ClassVar[str] = "gate"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_alias(self.alias)
        if not isinstance(self.rule, Approved):
            _check_numbers(self.rule)
            Reference.parse(self.rule.on).require_explicit("judge on")
        self.rule.check()

    def guards(self, artifact: str) -> bool:
        return fnmatchcase(artifact, self.artifact)

    def to_json(self) -> dict[str, Any]:
        rule = {"kind": self.rule.kind, **asdict(self.rule)}
        return {"artifact": self.artifact, "alias": self.alias, "rule": rule, "evaluator": self.evaluator}

    @classmethod
    def from_json(cls, name: str, body: Mapping[str, Any]) -> Gate:
        rule = dict(body["rule"])
        return cls(name, body["artifact"], body["alias"], _RULES[rule.pop("kind")](**rule), body["evaluator"])
