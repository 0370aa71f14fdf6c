"""Every error that podium raises on purpose.

    PodiumError                     exit status  (as such: 70, a fault of podium's own)
    |-- Refused                     1            a rule said no; nothing changed
    |   |-- GateFailed
    |   |-- AliasMoved
    |   |-- AliasHeld
    |   |-- VersionInUse
    |   |-- StaleAuthority
    |   |-- RunRefused
    |   |-- DeliveryRefused
    |   |-- Unauthorized
    |   |-- Forbidden
    |   `-- TooManyRequests
    |-- InvalidInput                2            what was given cannot be used
    |   |-- InvalidReference
    |   |-- InvalidContent
    |   |-- KindMismatch
    |   |-- EvidenceMismatch
    |   |-- InvalidSetting
    |   |-- InvalidApp
    |   |-- InvalidRequest
    |   |-- BodyTooLarge
    |   `-- NotFound
    |       |-- ArtifactNotFound
    |       |-- VersionNotFound
    |       |-- AliasNotFound
    |       |-- RunNotFound
    |       `-- DeliveryNotFound
    `-- Unavailable                 3            a part cannot be reached or is damaged
        |-- StoreUnavailable
        |-- StoreFull
        |-- ContentDamaged
        |-- DatabaseUnavailable
        |   `-- ServerUnavailable
        |-- SchemaMismatch
        |-- ServerMismatch
        `-- BrokerUnavailable

Other rooms add their own leaves in their own ``errors.py``, under the same three branches. A message says
what happened and to what; ``remedy`` says what to do next.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar


class PodiumError(Exception):
    """Something that podium was asked to do and did not do.

    ``str(error)`` is one or two sentences for a person. ``remedy`` is the next thing to try, ``details`` the
    facts as plain JSON values for a program, ``code`` the stable name of the error for both.
    """

    exit_status: ClassVar[int] = 70  # EX_SOFTWARE of sysexits.h; a rule's refusal must not be mistaken for it

    def __init__(self, message: str, *, remedy: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.details = details

    @classmethod
    def code_name(cls) -> str:
        """The class name in snake case, such as ``alias_moved``."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def code(self) -> str:
        """`code_name`."""
        return self.code_name()

    def to_dict(self) -> dict[str, Any]:
        """The error as it is printed with ``--json``."""
        return {"error": self.code, "message": self.message, "remedy": self.remedy, "details": self.details}


class Refused(PodiumError):
    """A rule said no. Nothing was changed."""

    exit_status = 1


class GateFailed(Refused):
    """A gate of the alias is not satisfied; ``details['verdicts']`` holds each rule with its evidence."""


class AliasMoved(Refused):
    """The alias is not where the caller expected it to be."""


class AliasHeld(Refused):
    """A rollback put a hold on the alias, and triggers may not move it until a person releases it."""


class VersionInUse(Refused):
    """The version may not be deleted: an alias, a rollback window or a deployment needs it."""


class StaleAuthority(Refused):
    """The writer's lease has passed to another holder, so its writes no longer count."""


class RunRefused(Refused):
    """The run is not in a state in which that can be done to it."""


class DeliveryRefused(Refused):
    """The delivery is not in a state in which that can be done to it."""


class Unauthorized(Refused):
    """The server does not know who asks: no token, or one that is wrong, expired or revoked."""


class Forbidden(Refused):
    """The token's role or scope does not allow it; the message names the role that does."""


class TooManyRequests(Refused):
    """Too much was asked in too short a time."""


class InvalidInput(PodiumError):
    """What was given cannot be used as it is. Nothing was stored."""

    exit_status = 2


class InvalidReference(InvalidInput):
    """A name, alias or reference breaks the grammar."""


class InvalidContent(InvalidInput):
    """A folder or file is not what its kind requires."""


class KindMismatch(InvalidInput):
    """A version of one kind was given where another is needed."""


class EvidenceMismatch(InvalidInput):
    """A report judges another version or another held-out set than it is published for."""


class InvalidSetting(InvalidInput):
    """A setting or an environment variable has a value that cannot be used."""


class InvalidApp(InvalidInput):
    """An app file cannot be loaded or contradicts itself."""


class InvalidRequest(InvalidInput):
    """A request over HTTP is not what the operation takes."""


class BodyTooLarge(InvalidInput):
    """What was sent has more bytes than are taken at once."""


class NotFound(InvalidInput):
    """There is nothing of that name."""


class ArtifactNotFound(NotFound):
    """No artifact has that name."""


class VersionNotFound(NotFound):
    """The artifact has no such version."""


class AliasNotFound(NotFound):
    """The artifact has no such alias."""


class RunNotFound(NotFound):
    """No run has that id."""


class DeliveryNotFound(NotFound):
    """No delivery has that id."""


class Unavailable(PodiumError):
    """A part that is needed cannot be reached, or what it holds cannot be used."""

    exit_status = 3


class StoreUnavailable(Unavailable):
    """The blob store cannot be reached or refuses the credentials."""


class StoreFull(Unavailable):
    """The blob store or the disk has no room left."""


class ContentDamaged(Unavailable):
    """Stored bytes are missing or do not have their digest."""


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached or may not be used where it lies."""


class ServerUnavailable(DatabaseUnavailable):
    """The server cannot be reached, and with it the database."""


class SchemaMismatch(Unavailable):
    """The database was made by another version of podium."""


class ServerMismatch(Unavailable):
    """Client and server are of versions that do not understand each other."""


class BrokerUnavailable(Unavailable):
    """NATS cannot be reached."""
