"""Aliases and what they are judged and explained by: promotion, evaluations, lineage."""

from __future__ import annotations

from types import EllipsisType
from typing import Protocol

from registry.values import Alias, Evaluation, LineageGraph, Promotion, Verdict


class Promotions(Protocol):
    """Aliases and how they move."""

    def promote(
        self,
        reference: str,
        alias: str,
        *,
        expect: int | EllipsisType | None = ...,
        expect_generation: int | None = None,
        reason: str = "",
    ) -> Promotion:
        """Move ``alias`` of the artifact to the version, behind its gates, in one transaction.

        ``expect`` is the version number that the alias must hold now, None for no such alias yet.

        Raises:
            GateFailed, AliasMoved, AliasHeld, VersionNotFound, StaleAuthority.
        """

    def judge(self, reference: str, alias: str) -> list[Verdict]:
        """What the alias's gates say of a version now, without moving anything."""

    def rollback(self, name: str, alias: str, *, to: int | None = None, reason: str = "") -> Promotion:
        """Go back to the last earlier version that was live (or to ``to``) and hold the alias."""

    def revert(self, name: str, alias: str, *, failed_generation: int, reason: str) -> Promotion | None:
        """Put the alias back because ``failed_generation`` could not be served; None if it has moved on."""

    def release(self, name: str, alias: str) -> Alias:
        """End a hold, so that triggers may promote again."""

    def get(self, name: str, alias: str) -> Alias:
        """Where the alias is. Raises `AliasNotFound`."""

    def aliases(self, name: str) -> list[Alias]: ...

    def history(
        self, name: str, alias: str | None = None, *, before: str | None = None, limit: int = 100
    ) -> list[Promotion]:
        """Newest first. With ``before`` only those earlier than the promotion of that event."""

    def promotion(self, name: str, alias: str, generation: int) -> Promotion: ...


class Evaluations(Protocol):
    """Scores of published reports."""

    def of(self, digest: str, *, dataset_digest: str | None = None) -> list[Evaluation]:
        """Evaluations of a content digest, newest first."""


class Lineage(Protocol):
    def walk(self, reference: str, *, up: bool = True, depth: int = 50) -> LineageGraph:
        """What a version was made from (``up``), or what was made from it.

        A value that has no name is given by its id or its digest, or by the beginning of either.
        """
