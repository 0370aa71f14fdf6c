"""Measures: what a run reports of itself while it goes."""

from __future__ import annotations

import pytest

from registry import Registry
from registry.errors import InvalidInput, RunRefused, StaleAuthority
from registry.measures import Measure, measured
from registry.resources import Resources
from registry.runs import Cause, Claim, RunRequest

_ROOM = Resources(cpu=64, memory="64Gi")


def begun(registry: Registry) -> Claim:
    run = registry.runs.queue(RunRequest("sft", resources=Resources(cpu=1)))
    (claim,) = registry.runs.claim("worker-1", free=_ROOM, total=_ROOM, only=run.id)
    return claim


def test_what_a_run_measures_is_kept_in_order_and_read_from_where_one_was(registry: Registry) -> None:
    claim = begun(registry)
    own = registry.acting(claim.origin)
    own.measures.add(claim.run.id, [measured(1, {"loss": 4.5}), measured(2, {"loss": float("nan")})])
    own.measures.add(claim.run.id, [measured(3, {"loss": 1, "eval/läss": 0.25})])
    first, second = registry.measures.of(claim.run.id)
    assert list(first.measures) == [Measure(1, {"loss": 4.5}), Measure(2, {"loss": None})]
    assert (second.attempt, second.sequence) == (1, 2)
    assert list(registry.measures.of(claim.run.id, after=first.sequence)) == [second]
    assert list(registry.measures.of(claim.run.id, limit=1)) == [first]


def test_only_the_attempt_that_carries_a_run_out_reports_its_measures(registry: Registry) -> None:
    claim = begun(registry)
    own = registry.acting(claim.origin)
    with pytest.raises(RunRefused, match="itself"):
        registry.measures.add(claim.run.id, [measured(1, {"loss": 1.0})])
    own.runs.end(claim.run.id, Cause.ERROR)
    with pytest.raises(StaleAuthority):
        own.measures.add(claim.run.id, [measured(1, {"loss": 1.0})])
    assert list(registry.measures.of(claim.run.id)) == []


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [Measure(-1, {"loss": 1.0})],
        [Measure(1, {})],
        [Measure(1, {"lo\nss": 1.0})],
        [Measure(1, {"": 1.0})],
    ],
    ids=["none", "step", "empty", "control", "nameless"],
)
def test_measures_that_cannot_be_kept_are_refused(registry: Registry, bad: list[Measure]) -> None:
    claim = begun(registry)
    with pytest.raises(InvalidInput):
        registry.acting(claim.origin).measures.add(claim.run.id, bad)
    assert list(registry.measures.of(claim.run.id)) == []
