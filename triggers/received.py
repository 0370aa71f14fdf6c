"""Events as handlers get them: with data of the type that their name promises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from registry.events import (
    DATA,
    AliasMoved,
    Data,
    EvaluationRecorded,
    EventType,
    PromotionRefused,
    RolloutChanged,
    RunChanged,
    VersionPublished,
)
from registry.runs import RESULT
from registry.values import Event

D = TypeVar("D", bound=Data, covariant=True)


@dataclass(frozen=True, slots=True)
class Received(Generic[D]):
    """A fact, and what it says. It is a hint: what holds now is in the registry."""

    id: str
    type: EventType
    subject: str
    key: str
    at: datetime
    actor: str  # on whose behalf it happened
    data: D  # such as `registry.events.AliasMoved`
    causation: str | None
    correlation: str | None

    @property
    def ref(self) -> str | None:
        """The version that it is about, as ``name:v7``; None if it is about none."""
        return reference_of(self.data)


def received(event: Event) -> Received[Data]:
    """An event of the outbox with typed data.

    Raises:
        ValueError: its type is not known to this podium, or its data are not of that type.
    """
    type = EventType(event.type)
    return Received(
        id=event.id,
        type=type,
        subject=event.subject,
        key=event.key,
        at=event.at,
        actor=event.actor,
        data=DATA[type].model_validate(event.data),
        causation=event.causation,
        correlation=event.correlation,
    )


def reference_of(data: Data) -> str | None:
    """The version that an event's data are about."""
    match data:
        case VersionPublished() | PromotionRefused() | RolloutChanged():
            return f"{data.artifact}:v{data.version}"
        case AliasMoved():
            return f"{data.artifact}:v{data.to_version}"
        case EvaluationRecorded():
            return None if data.artifact is None else f"{data.artifact}:v{data.version}"
        case RunChanged():
            return data.outputs.get(RESULT)
    return None


def fields_of(event: Received[Any]) -> dict[str, str]:
    """What the placeholders of an action stand for (`triggers.actions`)."""
    data = {name: str(v) for name, v in event.data.model_dump().items() if v is not None}
    reference = {} if event.ref is None else {"ref": event.ref}
    what = f"{event.type.removeprefix('podium.')} {event.subject}"
    return {**data, **reference, "event": event.id, "what": what, "actor": event.actor}
