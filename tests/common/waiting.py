"""Waiting for a condition with a deadline, in place of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.1


def wait_until(condition: Callable[[], T], timeout: float, message: str | Callable[[], str]) -> T:
    """Call ``condition`` until it returns something true, and return that.

    ``timeout`` is in seconds. After it an ``AssertionError`` says ``message``, which may be a function so
    that it can tell what was seen instead. What ``condition`` raises is not caught: an error is not
    "not yet".
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= deadline:
            said = message if isinstance(message, str) else message()
            raise AssertionError(f"not within {timeout:g} s: {said}")
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
