from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from registry.conditions import Conditions
from registry.errors import InvalidInput
from registry.runs import Cause, after_attempt

ASKED = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return ASKED + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("conditions", "queued", "expires"),
    [
        (Conditions(), 0, None),
        (Conditions(queue_timeout=5), 0, 5),
        (Conditions(queue_timeout=5), 20, 25),  # queued again, for a retry
        (Conditions(deadline=10), 8, 10),
        (Conditions(queue_timeout=5, deadline=10), 8, 10),
    ],
)
def test_waiting_ends_at_the_first_of_its_ends(
    conditions: Conditions, queued: float, expires: float | None
) -> None:
    assert conditions.expires(ASKED, after(queued)) == (None if expires is None else after(expires))


@pytest.mark.parametrize(
    ("conditions", "now", "allowed"),
    [
        (Conditions(), 0, None),
        (Conditions(timeout=5), 100, 5),
        (Conditions(deadline=10), 4, 6),
        (Conditions(timeout=5, deadline=10), 8, 2),
        (Conditions(deadline=10), 12, -2),
    ],
)
def test_an_attempt_may_take_what_timeout_and_deadline_leave(
    conditions: Conditions, now: float, allowed: float | None
) -> None:
    assert conditions.allowed(ASKED, after(now)) == allowed


def test_a_deadline_is_over_when_it_is_reached() -> None:
    assert Conditions(deadline=10).is_over(ASKED, after(10))
    assert not Conditions(deadline=10).is_over(ASKED, after(9.9))
    assert not Conditions().is_over(ASKED, after(1e9))


@pytest.mark.parametrize("conditions", [Conditions(), Conditions(1.5, 2, 3, 0, ("HF_TOKEN",))])
def test_what_is_stored_comes_back(conditions: Conditions) -> None:
    assert Conditions.from_json(conditions.to_json()) == conditions


@pytest.mark.parametrize("name", ["timeout", "queue_timeout", "deadline", "backoff"])
def test_a_time_that_cannot_be_kept_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        Conditions(**{name: -1})


def test_retries_wait_as_long_as_they_are_told() -> None:
    delays = [after_attempt(9, [Cause.ERROR] * n, Cause.ERROR, 0.5).delay for n in range(3)]
    assert delays == [0.5, 1.0, 2.0]
    assert after_attempt(9, [], Cause.ERROR, 0).delay == 0
