"""What is true of a deployment as a whole, and why: for people who ask what it is waiting for."""

from __future__ import annotations

from collections.abc import Iterator

from registry.deployments import BASE, TERMINAL, Condition, ConditionType, RolloutState
from serving.engine import Observation, Phase
from serving.state import Desired, Observed, Plan, route_map

__all__ = ["conditions"]


def conditions(desired: Desired, observed: Observed, plan: Plan) -> tuple[Condition, ...]:
    """All conditions of a deployment for which ``plan`` is what is to be done now."""
    return (
        _available(observed),
        _up_to_date(desired, observed),
        _progressing(observed, plan),
        Condition(ConditionType.PAUSED, desired.paused),
        _failed(desired, observed),
    )


def _answering(observed: Observed) -> list[Observation]:
    return [seen for seen in observed.replicas.values() if seen.phase is Phase.READY and seen.map is not None]


def _available(observed: Observed) -> Condition:
    reason = "; ".join(_unanswered(observed))
    return Condition(ConditionType.AVAILABLE, not reason, reason)


def _unanswered(observed: Observed) -> Iterator[str]:
    if not observed.table.routes:
        yield "nothing has been live yet"
        return
    front, answering = observed.front, _answering(observed)
    if front is not None and not (front.is_running and front.routed):
        yield "the proxy sends requests to nobody" + (f": {front.detail}" if front.detail else "")
        return
    if not answering:
        phases = ", ".join(f"replica {i} is {seen.phase}" for i, seen in sorted(observed.replicas.items()))
        yield f"no replica answers: {phases or 'there is none'}"
        return
    for served in observed.table.routes:
        if served != BASE and not any(seen.map and served in seen.map.routes for seen in answering):
            yield f"no replica answers {served}"


def _up_to_date(desired: Desired, observed: Observed) -> Condition:
    wanted = route_map(observed.table, observed.fence)
    there = sum(seen.map == wanted for seen in _answering(observed))
    reason = (
        "" if there >= desired.replicas else f"{there} of {desired.replicas} replicas have the newest map"
    )
    return Condition(ConditionType.UP_TO_DATE, not reason, reason)


def _progressing(observed: Observed, plan: Plan) -> Condition:
    under_way = [f"{r.target.ref} is {r.state}" for r in observed.open.values() if r.state not in TERMINAL]
    work = [*under_way, *plan.waiting]
    return Condition(ConditionType.PROGRESSING, bool(work), "; ".join([*work, *plan.needed]))


def _failed(desired: Desired, observed: Observed) -> Condition:
    """What was asked for last, and is asked for still or was put back since, could not be served."""
    failed = [
        f"{rollout.target.ref}: {rollout.reason}"
        for served, rollout in observed.latest.items()
        if rollout.state is RolloutState.FAILED and served in desired.targets()
    ]
    return Condition(ConditionType.FAILED, bool(failed), "; ".join(failed))
