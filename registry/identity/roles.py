"""The roles of a team: each may do all that the one below it may."""

from __future__ import annotations

from enum import StrEnum


class TeamRole(StrEnum):
    """In rising order."""

    VIEWER = "viewer"  # reads everything
    TRAINER = "trainer"  # publishes versions, queues runs, and carries them out
    PROMOTER = "promoter"  # moves aliases, retries deliveries, deploys apps
    ADMIN = "admin"  # gives out tokens, changes gates, runs relay and controllers

    def covers(self, needed: TeamRole) -> bool:
        """Whether this role may do what ``needed`` may."""
        return _ORDER.index(self) >= _ORDER.index(needed)


_ORDER = list(TeamRole)
