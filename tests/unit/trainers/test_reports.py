"""`report.log`: what a task reports is recorded as its run's, in order, also when the registry was away."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from registry.errors import DatabaseUnavailable, InvalidInput, StaleAuthority
from registry.measures import MOST_AT_ONCE, Measure
from registry.protocol import Registry
from tests.common.registries import running
from trainers.reports import Report


def reported(registry: Registry, run: str) -> list[tuple[int, dict[str, float | None]]]:
    return [(m.step, dict(m.numbers)) for part in registry.measures.of(run) for m in part.measures]


class Away:
    """Records, and refuses for as long as it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.taken: list[Measure] = []

    def __call__(self, measures: Sequence[Measure]) -> None:
        if self.error is not None:
            raise self.error
        self.taken.extend(measures)


def test_what_is_logged_is_recorded_as_the_runs(registry: Registry) -> None:
    acting, claim = running(registry, "train")
    report = Report()
    report.begin(acting, claim.run.id)
    report.log({"loss": 2.0}, step=5)
    report.log({"loss": math.nan, "lr": 0.1})  # the step after the last
    report.close()
    assert reported(registry, claim.run.id) == [(5, {"loss": 2.0}), (6, {"loss": None, "lr": 0.1})]


def test_outside_of_a_run_it_keeps_nothing_and_still_says_what_cannot_be() -> None:
    report = Report()
    report.log({"loss": 1.0})
    report.flush()
    with pytest.raises(InvalidInput, match="not all numbers"):
        report.log({"loss": "low"})  # type: ignore[dict-item]


def test_what_could_not_be_sent_is_sent_later_once_and_in_order() -> None:
    send = Away(DatabaseUnavailable("away"))
    report = Report()
    report._send = send
    for step in range(MOST_AT_ONCE + 10):
        report.log({"loss": 1.0}, step=step)
    with pytest.raises(DatabaseUnavailable):
        report.flush()
    send.error = None
    report.close()
    assert [each.step for each in send.taken] == list(range(MOST_AT_ONCE + 10))


def test_a_buffer_that_is_full_loses_the_oldest_and_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    send = Away(DatabaseUnavailable("away"))
    report = Report(most=3)
    report._send = send
    for step in range(5):
        report.log({"loss": 1.0}, step=step)
    send.error = None
    report.close()
    assert [each.step for each in send.taken] == [2, 3, 4]
    assert "2 reported measures were not recorded" in capsys.readouterr().out


def test_a_run_that_is_anothers_now_records_nothing_and_its_end_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report()
    report._send = Away(StaleAuthority("another attempt carries it out"))
    report.log({"loss": 1.0})
    report.close()
    assert "1 reported measures were not recorded" in capsys.readouterr().out
