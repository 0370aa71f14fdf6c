"""Triggers: what follows from an event without a user's code.

judge = Trigger("judge", OnArtifact("router"), queue_run("evaluate", subject="{ref}", data="held-out:v1"))
stage = Trigger("stage", OnEvaluation("router", "accuracy", at_least=0.9), Promote("staging"))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from registry.values import Access
from triggers.actions import Action, action_from_json, action_to_json, check_action
from triggers.filters import Filter
from triggers.retry import RetryPolicy
from triggers.subscription import Mode, Terms, access_of, declared_name


@dataclass(frozen=True, slots=True)
class Trigger:
    """``action`` is carried out for every event that matches ``on``; retried like a subscription."""

    name: str
    on: Filter
    action: Action
    mode: Mode = "each"
    retries: int = 5
    backoff: float = 1.0

    deployable: ClassVar[str] = "trigger"

    def __post_init__(self) -> None:
        declared_name(self.name)
        access_of(self.mode)
        RetryPolicy(self.retries, self.backoff)
        check_action(self.action, self.on.types)

    @property
    def terms(self) -> Terms:
        return Terms(self.on, Access(self.mode), RetryPolicy(self.retries, self.backoff))

    def to_json(self) -> Mapping[str, Any]:
        return {**self.terms.to_json(), "action": action_to_json(self.action)}

    @classmethod
    def from_json(cls, name: str, body: Mapping[str, Any]) -> Trigger:
        terms = Terms.from_json(body)
        return cls(
            name,
            terms.on,
            action_from_json(body["action"]),
            terms.access.value,
            terms.retry.retries,
            terms.retry.backoff,
        )
