"""Ending work on many threads at its first failure."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any


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
            self._remember(error)
            raise

    def wait_for(self, work: Collection[Future[Any]]) -> None:
        """Wait until all of it has ended, and raise what failed first, if anything did."""
        try:
            wait(work)
        except BaseException as error:  # the user interrupts the waiting
            self._remember(error)
            raise
        if self._cause is not None:
            raise self._cause

    def _remember(self, error: BaseException) -> None:
        with self._lock:
            self._cause = self._cause or error
