"""Transactions that a client holds open over several requests.

A transaction of the database belongs to a thread, so each has one here, on which the requests that are part
of it are carried out one after the other. SQLite has one writer: who opens a transaction and goes away would
keep all others waiting, so one that is not used for a few seconds is undone.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from registry.errors import InvalidRequest, TooManyRequests
from registry.protocol import Registry

T = TypeVar("T")

_IDLE_SECONDS = 10.0
_MOST = 16


class _Undone(Exception):
    """What a transaction is left with that shall not become true."""


@dataclass
class _Open:
    owner: str  # id of the token that opened it
    thread: ThreadPoolExecutor
    block: ExitStack
    used_at: float = field(default_factory=time.monotonic)

    def run(self, act: Callable[[], T]) -> T:
        self.used_at = time.monotonic()
        try:
            return self.thread.submit(act).result()
        finally:
            self.used_at = time.monotonic()

    def end(self, *, undo: bool) -> None:
        error = _Undone() if undo else None
        try:
            self.run(lambda: self.block.__exit__(type(error) if error else None, error, None))
        except _Undone:
            pass
        finally:
            self.thread.shutdown(wait=False)


class OpenTransactions:
    """All that are open now, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def begin(self, registry: Registry, owner: str) -> str:
        """Open one on the registry's behalf; its id.

        Raises:
            TooManyRequests: too many are open.
        """
        self.undo_idle()
        with self._lock:
            if len(self._open) >= _MOST:
                raise TooManyRequests(f"{_MOST} transactions are open already.", remedy="Try again shortly.")
        thread, block = ThreadPoolExecutor(1, "transaction"), ExitStack()
        opened = _Open(owner, thread, block)
        try:
            opened.run(lambda: block.enter_context(registry.transaction()))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        id = secrets.token_hex(16)
        with self._lock:
            self._open[id] = opened
        return id

    def run(self, id: str, owner: str, act: Callable[[], T]) -> T:
        """Do something as part of an open transaction."""
        return self._find(id, owner).run(act)

    def commit(self, id: str, owner: str) -> None:
        self._take(id, owner).end(undo=False)

    def undo(self, id: str, owner: str) -> None:
        self._take(id, owner).end(undo=True)

    def undo_idle(self, *, idle: float = _IDLE_SECONDS) -> None:
        """Undo those whose clients say nothing any more."""
        before = time.monotonic() - idle
        with self._lock:
            gone = [id for id, each in self._open.items() if each.used_at < before]
            left = [self._open.pop(id) for id in gone]
        for each in left:
            each.end(undo=True)

    def close(self) -> None:
        self.undo_idle(idle=-1)

    def _find(self, id: str, owner: str) -> _Open:
        with self._lock:
            found = self._open.get(id)
        if found is None or found.owner != owner:
            raise _gone()
        return found

    def _take(self, id: str, owner: str) -> _Open:
        found = self._find(id, owner)
        with self._lock:
            if self._open.pop(id, None) is None:
                raise _gone()
        return found


def _gone() -> InvalidRequest:
    return InvalidRequest(
        "The transaction is not open any more; nothing of it was written.",
        remedy=f"Begin it again. One that is not used for {_IDLE_SECONDS:g} s is undone. "
        "Where several servers run, all requests of one have to reach the same server.",
    )
