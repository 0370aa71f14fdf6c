"""Events and deliveries in the few words and colours of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from registry.deliveries import DeliveryState
from registry.events import EventType
from registry.values import Event

_BAD = ("failed", "refused", "interrupted")
_GOOD = ("live", "succeeded")
_WARN = ("reverted", "rolledback", "superseded", "cancelled", "paused")

DELIVERY_TONES: Mapping[DeliveryState, str] = {
    DeliveryState.PENDING: "busy",
    DeliveryState.RUNNING: "busy",
    DeliveryState.HELD: "warn",
    DeliveryState.DONE: "good",
    DeliveryState.DEAD: "bad",
    DeliveryState.SUPERSEDED: "",
    DeliveryState.STOPPED: "warn",
}


def families() -> Sequence[str]:
    """The first words of events' types: ``version``, ``alias``, ``run`` ..."""
    return tuple(dict.fromkeys(each.value.split(".")[1] for each in EventType))


def tone(type: str) -> str:
    """The colour of an event."""
    last = type.rpartition(".")[2]
    return "bad" if last in _BAD else "good" if last in _GOOD else "warn" if last in _WARN else ""


def remark(event: Event) -> str:
    """What an event says beside its type and subject, in half a line."""
    data = event.data
    match event.type:
        case EventType.ALIAS_PROMOTED | EventType.ALIAS_ROLLED_BACK:
            before = data.get("from_version")
            moved = f"v{before} → v{data.get('to_version')}" if before else f"to v{data.get('to_version')}"
            return f"{moved}: {data['reason']}" if data.get("reason") else moved
        case EventType.EVALUATION_RECORDED:
            return ", ".join(f"{name} {value:.4g}" for name, value in data.get("scores", {}).items())
        case EventType.PROMOTION_REFUSED:
            return _first_line(data.get("message", ""))
    if event.type.startswith("podium.run."):
        return _first_line(": ".join(part for part in (data.get("task"), data.get("error")) if part))
    return _first_line(data.get("reason") or "")


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]


def last_line(error: str | None) -> str:
    """The line of an error that says what happened: of a traceback the last one."""
    lines = (error or "").strip().splitlines()
    return (lines[-1] if lines and lines[0].startswith("Traceback") else lines[0])[:300] if lines else ""
