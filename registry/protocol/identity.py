"""Who may do what, as the `Registry` protocol gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from registry.identity.roles import TeamRole
from registry.identity.tokens import Approval, AuditEntry, IssuedToken, Protection, Token


class Identity(Protocol):
    """Tokens of a server's clients, protected aliases, approvals, and the trail of writes."""

    def issue(
        self, name: str, role: TeamRole, *, pattern: str = "*", days: float | None = None
    ) -> IssuedToken:
        """Make a token for ``name``, good for ``days`` (None: until it is revoked)."""

    def for_run(self, run: str) -> IssuedToken:
        """A token for the process of a run, good while the attempt that asks holds its lease.

        It stands for that run alone. Called by a registry acting with the run's authority. Raises
        `StaleAuthority`.
        """

    def tokens(self) -> Sequence[Token]:
        """All that people were given, the newest first."""

    def revoke(self, token: str) -> Token:
        """End a token now, by its id or the only name that it has. Raises `NotFound`."""

    def protect(self, artifact: str, alias: str, role: TeamRole) -> Protection:
        """From now on the alias of artifacts that match needs ``role`` to move; `promoter` ends that."""

    def protections(self) -> Sequence[Protection]: ...

    def approve(self, reference: str, alias: str, *, reason: str = "") -> Approval:
        """Say that a version may become ``alias``: what a gate that asks for an approval looks for."""

    def approvals(self, digest: str) -> Sequence[Approval]:
        """Of a content, the newest first."""

    def audit(self, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """Writes that were asked for over HTTP, the newest first, numbered below ``before``."""
