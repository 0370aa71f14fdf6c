"""Exclusive work, by lease and epoch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from registry.values import Lease


class Leases(Protocol):
    """Exclusive work, by lease and epoch."""

    def acquire(self, name: str, holder: str, *, seen: Lease | None = None) -> Lease | None:
        """Take a free lease; or, with ``seen``, take it over from a holder who has not beaten since.

        None: somebody holds it (or has beaten since ``seen``).
        """

    def get(self, name: str) -> Lease | None:
        """Who holds it now; None if it is free."""

    def beat(self, leases: Collection[Lease]) -> list[Lease]:
        """Say that the holder lives. Those still held come back with a higher beat; lost ones do not."""

    def release(self, lease: Lease) -> None:
        """Free it, if it is still ours."""

    def held(self, prefix: str) -> list[Lease]:
        """All leases that are held under a prefix such as ``run/``."""
