"""What the files of users declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from registry.values import AppChange, AppObject


class Apps(Protocol):
    """Declared objects."""

    def plan(self, app: str, objects: Sequence[AppObject]) -> list[AppChange]:
        """What applying would add, change, remove and keep."""

    def apply(self, app: str, objects: Sequence[AppObject], *, plan: Sequence[AppChange]) -> None:
        """Make the app's declared objects exactly these, in one transaction, if ``plan`` is still true."""

    def objects(self, kind: str | None = None, *, app: str | None = None) -> list[AppObject]: ...
