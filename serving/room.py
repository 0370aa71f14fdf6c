"""Whether more engine processes fit into this machine's memory: an estimate, made before any is started."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Room"]

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Room:
    """Memory that is free, and what one more process is expected to take, in bytes. None: nobody knows."""

    free: int | None = None
    each: int | None = None

    @property
    def fits(self) -> int | None:
        """How many more processes there is room for."""
        if self.free is None or not self.each:
            return None
        return max(0, self.free // self.each)

    def is_enough_for(self, count: int) -> bool:
        """Whether so many more fit, as far as anybody knows."""
        return self.fits is None or self.fits >= count

    def describe(self, count: int) -> str:
        """The figures in words."""
        if self.free is None or self.each is None:
            return "how much memory is free is not known"
        needed = (
            f"{count} more of about {self.each / _GIB:.1f} GiB"
            if count > 1
            else f"{self.each / _GIB:.1f} GiB"
        )
        return f"it would take {needed}, and {self.free / _GIB:.1f} GiB is free"
