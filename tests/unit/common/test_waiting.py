from __future__ import annotations

import pytest

from tests.common.waiting import wait_until


def test_the_first_true_result_is_returned() -> None:
    answers = iter([0, "", 7])
    assert wait_until(lambda: next(answers), 5, "seven") == 7


def test_after_the_deadline_the_message_says_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: seen 3"):
        wait_until(lambda: False, 0.01, lambda: f"seen {3}")


def test_an_error_in_the_condition_is_not_waited_for() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, 60, "never")
