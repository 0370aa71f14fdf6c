"""What people tell a deployment beside its declaration, and the keys that its clients show.

A declaration comes from an app file; an intent and keys are given by hand and outlive the next
`podium deploy`. Neither is an effect: they are stored, and the deployment's controller makes them so.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

_SECRET_BYTES = 32
KEY_PREFIX = "podium"


@dataclass(frozen=True, slots=True)
class Intent:
    """Whether a deployment is paused, and how often it was told to begin anew with its processes."""

    deployment: str
    paused: bool = False
    reason: str = ""  # why it was paused
    by: str | None = None  # who paused or resumed it last
    at: datetime | None = None
    restarts: int = 0  # each one more asks for every replica to be replaced


@dataclass(frozen=True, slots=True)
class ClientKey:
    """What is kept of a key: enough to know it again, too little to use it."""

    deployment: str
    id: str  # 8 hexadecimal digits, the part of the key that is no secret
    label: str
    sha256: str  # of the whole key as text
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key at the only moment at which anybody can see it."""

    key: ClientKey
    secret: str

    def __repr__(self) -> str:
        return f"NewKey({self.key.id})"


def make_key() -> tuple[str, str]:
    """A new key: its id and its text, ``podium-<id>-<secret>``."""
    id = secrets.token_hex(4)
    return id, f"{KEY_PREFIX}-{id}-{secrets.token_urlsafe(_SECRET_BYTES)}"


def hash_key(text: str) -> str:
    """What is stored of a key. Plain SHA-256 is enough: a random secret of 32 bytes cannot be guessed."""
    return hashlib.sha256(text.encode()).hexdigest()
