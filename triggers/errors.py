"""Errors of this room.

Refused
|-- StreamAhead           the stream has events that the database does not know
|-- SelfStart             a trigger would start itself
`-- DeliveryRefused       the delivery is not in a state in which that can be done to it
InvalidInput
|-- InvalidFilter
|-- InvalidAction
|-- InvalidSubscription
|-- MalformedMessage      a message in the stream is not one of podium's events
`-- NotFound
    `-- DeliveryNotFound
Unavailable
|-- NotificationFailed    a webhook was not taken by its receiver
`-- BrokerUnavailable
    |-- ServerNotInstalled
    `-- ServerNotRunning
"""

from __future__ import annotations

from registry.errors import (
    BrokerUnavailable,
    DeliveryNotFound,
    DeliveryRefused,
    InvalidInput,
    Refused,
    Unavailable,
)


class StreamAhead(Refused):
    """The stream holds events that the database does not have, as after restoring a backup of it."""


class SelfStart(Refused):
    """A trigger or subscription was about to start because of something that it had done itself."""


class InvalidFilter(InvalidInput):
    """An event filter cannot be read or can match nothing."""


class InvalidAction(InvalidInput):
    """A trigger's action cannot be read or needs something that its events do not carry."""


class InvalidSubscription(InvalidInput):
    """A subscription's settings or its handler cannot be used."""


class MalformedMessage(InvalidInput):
    """A message in the stream is not an event that podium wrote."""


class NotificationFailed(Unavailable):
    """A webhook was not taken by its receiver."""


class ServerNotInstalled(BrokerUnavailable):
    """There is no ``nats-server`` program to start."""


class ServerNotRunning(BrokerUnavailable):
    """No process of this PODIUM_HOME runs a NATS server."""


__all__ = [
    "BrokerUnavailable",
    "DeliveryNotFound",
    "DeliveryRefused",
    "InvalidAction",
    "InvalidFilter",
    "InvalidSubscription",
    "MalformedMessage",
    "NotificationFailed",
    "SelfStart",
    "ServerNotInstalled",
    "ServerNotRunning",
    "StreamAhead",
]
