"""Ending work on many threads at its first failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Abandoned(Exception):
    """The work is not worth doing any more, because something else has failed."""


class FirstFailure:
    """Remembers what failed first; work that begins after that is abandoned."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cause: BaseException | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Do the work inside if nothing has failed yet (else `Abandoned`), and remember how it fails."""
        if self._cause is not None:
            raise Abandoned
        try:
            yield
        except BaseException as error:
            with self._lock:
                self._cause = self._cause or error
            raise

    def check(self) -> None:
        """Raise what failed first, if anything did."""
        if self._cause is not None:
            raise self._cause
