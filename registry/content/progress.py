"""How a long transfer says how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told about bytes as they are dealt with; may be called from several threads at once."""

    def start(self, total: int) -> None:
        """A transfer of ``total`` bytes begins."""

    def advance(self, count: int) -> None:
        """``count`` more bytes are done, whether they had to be moved or were there already."""


class Silent:
    """A progress that nobody looks at."""

    def start(self, total: int) -> None:
        """Ignore it."""

    def advance(self, count: int) -> None:
        """Ignore it."""
