"""Being asked to stop: SIGTERM is heeded at the end of the step, after what was learned is saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

#: Whether this process was asked. It is asked once, whatever it does at that moment.
_asked = threading.Event()


class Interrupted(BaseException):
    """The process was asked to stop, and its state is saved: the run goes on elsewhere.

    Not an `Exception`: a task that catches those must end all the same.
    """


class Preemption:
    """Holds SIGTERM back inside a ``with`` block, so that a training can stop where its state is whole.

    Only the main thread can hold signals back; elsewhere the process ends at once, as without it.
    """

    def __init__(self) -> None:
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._holds = False

    @property
    def asked(self) -> bool:
        """Whether the process was asked to stop."""
        return _asked.is_set()

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()

    def hold(self) -> None:
        """Begin to hold SIGTERM back; nothing happens when it is held back already."""
        if not self._holds and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _remember_in(os.getpid()))
            self._holds = True

    def let_go(self) -> None:
        """Let SIGTERM end the process again, as it did before."""
        if self._holds:
            signal.signal(signal.SIGTERM, self._before)
            self._holds = False


def give_way(reason: str) -> None:
    """Raise `Interrupted`: what had to be saved is saved."""
    _asked.clear()
    raise Interrupted(reason)


def _remember_in(process: int) -> Callable[[int, FrameType | None], None]:
    def remember(number: int, _: FrameType | None) -> None:
        if os.getpid() == process:
            _asked.set()
        else:  # a helper that was forked, such as a data loader's, has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return remember
