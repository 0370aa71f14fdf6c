"""Saving off the training thread: one save at a time, and of those that wait only the newest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from registry.errors import PodiumError, Unavailable

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Save:
    """One save: ``carry_out`` stores it, ``discard`` removes what it would have been made from."""

    step: int
    carry_out: Callable[[], None]
    discard: Callable[[], None]


class Saver:
    """A thread that saves what it is given.

    A training must neither wait for a slow store nor fill the disk with what a slow store has not taken: a
    save that still waits when a newer one comes is dropped. A save that fails because something cannot be
    reached is tried again until a newer one comes; any other failure is raised in the training's thread, at
    its next call.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._changed = threading.Condition()
        self._waiting: Save | None = None
        self._busy = False
        self._failure: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, save: Save) -> None:
        """Have ``save`` carried out soon. Raises what an earlier one failed with."""
        with self._changed:
            dropped, self._waiting = (save, None) if self._closed else (self._waiting, save)
            if self._thread is None and not self._closed:
                # A daemon: nothing is lost when the process ends before it, but what was being saved.
                self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if dropped is not None:
            dropped.discard()
        self.check()

    def check(self) -> None:
        """Raise what a save failed with."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all is saved; False when that took longer than ``timeout`` seconds."""
        with self._changed:
            done = self._changed.wait_for(self._is_idle, timeout)
        self.check()
        return done

    def _is_idle(self) -> bool:
        return self._failure is not None or (self._waiting is None and not self._busy)

    def close(self) -> None:
        """Save nothing more; a save that is being carried out comes to its end or to nothing."""
        with self._changed:
            self._closed = True
            dropped, self._waiting = self._waiting, None
            self._changed.notify_all()
        if dropped is not None:
            dropped.discard()

    def _work(self) -> None:
        while (save := self._next()) is not None:
            try:
                self._persist(save)
            except BaseException as error:
                with self._changed:
                    self._failure = error
            finally:
                save.discard()
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _next(self) -> Save | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            if self._closed or self._failure is not None:
                return None
            save, self._waiting = self._waiting, None
            self._busy = True
            return save

    def _persist(self, save: Save) -> None:
        """Carry a save out, again and again while that is nobody's fault and nothing newer waits."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return save.carry_out()
            except (Unavailable, OSError) as error:
                said = error.message if isinstance(error, PodiumError) else str(error)
                self._say(f"WARNING: the checkpoint at step {save.step} is not saved yet: {said}")
            with self._changed:
                if self._changed.wait_for(lambda: self._closed or self._waiting is not None, pause):
                    return None
            pause = min(2 * pause, _LONGEST_PAUSE)
