"""Tokens: who asks, what they may do, until when. Only the hash of a token's secret is kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from registry.errors import InvalidInput
from registry.identity.roles import TeamRole

_TEXT = re.compile(r"podium_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,99}")
_BROWSER = "@browser"
_PATTERN = re.compile(r"[a-z0-9*?._-]{1,100}")


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; its secret is not."""

    id: str  # 12 hex digits; also the beginning of the token itself
    name: str  # who uses it: writes are of ``user:<name>``
    role: TeamRole
    pattern: str  # glob over the names of artifacts that it may change
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None  # None: when it is revoked
    revoked_at: datetime | None = None
    run: str | None = None  # the run that it was given to: it writes as that run alone
    epoch: int | None = None  # ... under that epoch of its lease

    @property
    def actor(self) -> str:
        """On whose behalf its bearer writes."""
        return f"run:{self.run}" if self.run else f"user:{self.name}"

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def covers(self, artifact: str) -> bool:
        """Whether the artifact is among those that it may change."""
        return fnmatchcase(artifact, self.pattern)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token, with its secret: it is shown this once and cannot be read again."""

    token: Token
    secret: str


def browser_of(actor: str) -> str:
    """The name of a session that the server's own link opened: ``ada@browser`` for who had started it."""
    name = f"{actor.partition(':')[2]}{_BROWSER}"
    return name if _NAME.fullmatch(name) else f"admin{_BROWSER}"


def is_of_browser(token: Token) -> bool:
    """Whether it is a session that the server's own link opened."""
    return token.name.endswith(_BROWSER)


@dataclass(frozen=True, slots=True)
class Protection:
    """An alias that needs a higher role than `promoter` to move."""

    artifact: str  # name or glob
    alias: str
    role: TeamRole


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody's word that a content may become an alias."""

    artifact: str
    alias: str
    version: int
    digest: str
    actor: str
    role: TeamRole  # of who said it, then
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One write that was asked for over HTTP, whatever became of it."""

    number: int  # order of recording
    at: datetime
    token: str | None  # id of the token
    actor: str
    operation: str  # "promotions.promote"
    target: str  # path of the request
    status: int  # of the answer
    address: str  # where it came from


def new_text() -> tuple[str, str]:
    """A new token: its id, and the text that is given out."""
    identity = secrets.token_hex(6)
    return identity, f"podium_{identity}_{secrets.token_urlsafe(32)}"


def identity_of(text: str) -> str | None:
    """The id in a token's text; None if it is no token."""
    found = _TEXT.fullmatch(text)
    return found[1] if found else None


def hash_of(text: str) -> str:
    """What is kept of a token. It is 256 random bits, so a plain hash cannot be searched."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_same(text: str, kept: str) -> bool:
    return hmac.compare_digest(hash_of(text), kept)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:40]}' cannot be whom a token is for.",
            remedy="Use 1 to 100 letters, digits and @ . _ -, such as ada or ci-nightly.",
        )
    return name


def check_pattern(pattern: str) -> str:
    if not _PATTERN.fullmatch(pattern):
        raise InvalidInput(
            f"'{pattern[:40]}' is no pattern of artifacts' names.", remedy="Write for example: support-*"
        )
    return pattern
