"""Which events start something: filters as values, readable back from the JSON that `podium deploy` stores.

Names and tasks are globs (``support-*``). A field that is left out matches everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from registry.errors import InvalidReference
from registry.events import EventType
from registry.references import check_alias
from registry.values import Event
from triggers.errors import InvalidFilter


@dataclass(frozen=True, slots=True)
class OnPromotion:
    """An alias of an artifact was moved; with ``rollbacks`` also when a person moved it back."""

    artifact: str = "*"
    alias: str | None = None
    rollbacks: bool = False

    on: ClassVar[str] = "promotion"

    def __post_init__(self) -> None:
        _check_alias(self.alias)

    @property
    def types(self) -> frozenset[EventType]:
        rolled_back = {EventType.ALIAS_ROLLED_BACK} if self.rollbacks else set()
        return frozenset({EventType.ALIAS_PROMOTED, *rolled_back})

    def matches(self, event: Event) -> bool:
        data = event.data
        return (
            event.type in self.types
            and fnmatchcase(data.get("artifact", ""), self.artifact)
            and self.alias in (None, data.get("alias", ""))
        )


@dataclass(frozen=True, slots=True)
class OnArtifact:
    """A version was published."""

    artifact: str = "*"
    kind: str | None = None  # such as "adapter"
    tags: Mapping[str, str] = field(default_factory=dict)  # all of them, with these values

    on: ClassVar[str] = "artifact"
    types: ClassVar[frozenset[EventType]] = frozenset({EventType.VERSION_PUBLISHED})

    def matches(self, event: Event) -> bool:
        data = event.data
        return (
            event.type in self.types
            and fnmatchcase(data.get("artifact", ""), self.artifact)
            and self.kind in (None, data.get("kind", ""))
            and self.tags.items() <= data.get("tags", {}).items()
        )


@dataclass(frozen=True, slots=True)
class OnEvaluation:
    """A report was recorded; with ``metric`` one that has this score, within the bounds that are given."""

    artifact: str = "*"
    metric: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    evaluator: str | None = None  # task that made the report

    on: ClassVar[str] = "evaluation"
    types: ClassVar[frozenset[EventType]] = frozenset({EventType.EVALUATION_RECORDED})

    def __post_init__(self) -> None:
        if self.metric is None and (self.at_least is not None or self.at_most is not None):
            raise InvalidFilter("A bound is given without a metric.", remedy="Give metric= as well.")

    def matches(self, event: Event) -> bool:
        data = event.data
        return (
            event.type in self.types
            and fnmatchcase(data.get("artifact") or "", self.artifact)
            and self.evaluator in (None, data.get("evaluator", ""))
            and (self.metric is None or self._is_within(data.get("scores", {}).get(self.metric)))
        )

    def _is_within(self, score: float | None) -> bool:
        if score is None:
            return False
        above = self.at_least is None or score >= self.at_least
        return above and (self.at_most is None or score <= self.at_most)


@dataclass(frozen=True, slots=True)
class OnRollout:
    """Serving carried a promotion out, or did not: ``state`` is live, failed, reverted or superseded."""

    artifact: str = "*"
    state: str = "live"
    deployment: str = "*"

    on: ClassVar[str] = "rollout"

    def __post_init__(self) -> None:
        _check_state(self.on, self.state)

    @property
    def types(self) -> frozenset[EventType]:
        return frozenset({EventType(f"podium.{self.on}.{self.state}")})

    def matches(self, event: Event) -> bool:
        data = event.data
        return (
            event.type in self.types
            and fnmatchcase(data.get("artifact", ""), self.artifact)
            and fnmatchcase(data.get("deployment", ""), self.deployment)
        )


@dataclass(frozen=True, slots=True)
class OnRun:
    """A run came into a state: queued, started, succeeded, failed, interrupted or cancelled."""

    task: str = "*"
    state: str = "succeeded"

    on: ClassVar[str] = "run"

    def __post_init__(self) -> None:
        _check_state(self.on, self.state)

    @property
    def types(self) -> frozenset[EventType]:
        return frozenset({EventType(f"podium.{self.on}.{self.state}")})

    def matches(self, event: Event) -> bool:
        return event.type in self.types and fnmatchcase(event.data.get("task", ""), self.task)


Filter = OnPromotion | OnArtifact | OnEvaluation | OnRollout | OnRun
_FILTERS: dict[str, type[Filter]] = {
    cls.on: cls for cls in (OnPromotion, OnArtifact, OnEvaluation, OnRollout, OnRun)
}


def filter_to_json(filter: Filter) -> dict[str, Any]:
    """The filter as plain JSON values."""
    return {"on": filter.on, **asdict(filter)}


def filter_from_json(body: Mapping[str, Any]) -> Filter:
    """The filter that `filter_to_json` wrote.

    Raises:
        InvalidFilter: it is of another podium, or damaged.
    """
    fields = dict(body)
    try:
        return _FILTERS[fields.pop("on")](**fields)
    except (KeyError, TypeError) as error:
        raise InvalidFilter(
            f"An event filter cannot be read: {error}.", remedy="Deploy the app again with this podium."
        ) from error


def _check_alias(alias: str | None) -> None:
    if alias is not None:
        try:
            check_alias(alias)
        except InvalidReference as error:
            raise InvalidFilter(error.message, remedy=error.remedy) from error


def _check_state(kind: str, state: str) -> None:
    states = [t.rpartition(".")[2] for t in EventType if t.startswith(f"podium.{kind}.")]
    if state not in states:
        raise InvalidFilter(
            f"A {kind} does not come into a state '{state}'.", remedy=f"States are {', '.join(states)}."
        )
