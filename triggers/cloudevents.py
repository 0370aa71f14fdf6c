"""Events as NATS messages: CloudEvents 1.0 in binary mode.

Each attribute travels as a header ``ce-<name>``, percent-encoded as the CloudEvents NATS binding (section
3.1.3.2) asks; the event's data is the payload, as JSON. Beside the required attributes:

    sequence        order of commit in the database, zero-padded so that it compares as text
    incarnation     which stream of the database carries it
    partitionkey    what events are ordered by: the artifact's name
    causationid     id of the event that led to this one
    correlationid   id shared by everything that follows from one first cause
    authid          on whose behalf it was written
    traceparent     W3C trace context
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

from registry.values import Event
from triggers.errors import MalformedMessage

_PREFIX = "ce-"
_SEQUENCE_DIGITS = 20
# Printable ASCII that the binding leaves as it is: all but space, double quote and percent.
_PLAIN = "!#$&'()*+,/:;<=>?@[\\]^`{|}"
_REQUIRED = ("specversion", "id", "type", "source", "subject", "time", "sequence", "partitionkey")


@dataclass(frozen=True, slots=True)
class Message:
    """What goes over the wire."""

    subject: str
    headers: Mapping[str, str]
    payload: bytes


def subject_prefix(database_id: str) -> str:
    """The subject under which all events of a database lie."""
    return f"podium.{database_id}"


def subject_of(database_id: str, event_type: str, key: str) -> str:
    """``podium.<database id>.<type without its first part>.<key as one token>``."""
    return f"{subject_prefix(database_id)}.{event_type.removeprefix('podium.')}.{token(key)}"


def token(text: str) -> str:
    """Any text as one token of a NATS subject, which may hold no dot, space or wildcard."""
    return quote(text, safe="").replace(".", "%2E")


def encode(event: Event, *, database_id: str, incarnation: int) -> Message:
    """The message that carries ``event`` in the stream of an incarnation."""
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "type": event.type,
        "source": f"podium:{database_id}",
        "subject": event.subject,
        "time": event.at.isoformat(),
        "datacontenttype": "application/json",
        "dataschema": f"podium:{event.type}/{event.schema_version}",
        "sequence": f"{event.sequence:0{_SEQUENCE_DIGITS}d}",
        "incarnation": str(incarnation),
        "partitionkey": event.key,
        "authid": event.actor,
        "causationid": event.causation,
        "correlationid": event.correlation,
        "traceparent": event.traceparent,
    }
    headers = {
        _PREFIX + name: quote(value, safe=_PLAIN) for name, value in attributes.items() if value is not None
    }
    payload = json.dumps(event.data, separators=(",", ":"), ensure_ascii=False).encode()
    return Message(subject_of(database_id, event.type, event.key), headers, payload)


def decode(headers: Mapping[str, str] | None, payload: bytes) -> Event:
    """The event that a message carries.

    Raises:
        MalformedMessage: it is not a CloudEvent with the attributes that podium writes.
    """
    attributes = {
        name[len(_PREFIX) :].lower(): unquote(value)
        for name, value in (headers or {}).items()
        if name.lower().startswith(_PREFIX)
    }
    missing = [name for name in _REQUIRED if name not in attributes]
    if missing:
        raise _malformed(f"it has no {', '.join(missing)}")
    try:
        return _event(attributes, payload)
    except (ValueError, UnicodeDecodeError) as error:
        raise _malformed(str(error)) from error


def incarnation_of(headers: Mapping[str, str] | None) -> int:
    """The incarnation that a message says it belongs to; 0 when it does not say."""
    stated = (headers or {}).get(_PREFIX + "incarnation", "0")
    return int(stated) if stated.isascii() and stated.isdigit() else 0


def _event(attributes: Mapping[str, str], payload: bytes) -> Event:
    data = json.loads(payload)
    if not isinstance(data, dict):
        raise ValueError("its data is not a JSON object")
    return Event(
        sequence=int(attributes["sequence"]),
        id=attributes["id"],
        type=attributes["type"],
        subject=attributes["subject"],
        key=attributes["partitionkey"],
        at=datetime.fromisoformat(attributes["time"]),
        actor=attributes.get("authid", ""),
        data=data,
        causation=attributes.get("causationid"),
        correlation=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        schema_version=int(attributes.get("dataschema", "/1").rpartition("/")[2]),
    )


def _malformed(why: str) -> MalformedMessage:
    return MalformedMessage(
        f"A message in the event stream is not one of podium's events: {why}.",
        remedy="Find out who else may publish to the stream; the message is skipped.",
    )
