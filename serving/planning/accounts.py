"""To whose account a failure goes, and how many of them are too many."""

from __future__ import annotations

from registry.deployments import Rollout

__all__ = ["FRONT_KEY", "MOST_STARTS", "attempts_key", "files_key", "setup_key"]

MOST_STARTS = 3  # failed starts of processes of a new setup, before it is given up for the one that serves

FRONT_KEY = "front"


def attempts_key(rollout: Rollout | None = None, *, replica: int | None = None, ref: str = "") -> str:
    """A rollout's, a replica's, or a version's on a replica."""
    return f"rollout/{rollout.id}" if rollout else f"replica/{replica}/{ref}" if ref else f"replica/{replica}"


def setup_key(fingerprint: str) -> str:
    """All processes of one setup together."""
    return f"setup/{fingerprint}"


def files_key(digest: str) -> str:
    """Bringing a content's files here, where the store itself is in trouble."""
    return f"files/{digest}"
