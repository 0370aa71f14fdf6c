"""The rollout's decisions: a pure function from what is desired and observed to the next steps.

It is level-triggered: nothing but its arguments says where things stand, so a controller that was killed at
any line is continued by the next one, which looks and plans again. Steps may be repeated; each is a whole
effect.

A promotion goes Begin, Stage, Check, Load and Probe on every replica, Flip (the route is decided, in the
database), Apply on every replica, Finish as live. Before Flip anything that goes wrong fails the rollout and
leaves the route as it was. After Flip it can only go forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from serving.planning import bases, processes, replicas, rollouts, traffic
from serving.planning.accounts import FRONT_KEY, attempts_key, files_key, setup_key
from serving.planning.view import View
from serving.state import Desired, Observed, Plan, Step

__all__ = ["FRONT_KEY", "attempts_key", "files_key", "plan", "setup_key"]

Stage = Callable[[View], Iterator[Step]]

_KEEP: tuple[Stage, ...] = (
    processes.run_processes,
    replicas.bring_up_to_date,
    traffic.route_traffic,
    replicas.finish_live,
)
_CHANGE: tuple[Stage, ...] = (
    rollouts.drop_routes,
    rollouts.begin_rollouts,
    *_KEEP,
    bases.advance_base,
    bases.advance_settings,
    rollouts.advance_rollouts,
    replicas.warm_previous,
    replicas.unload_unneeded,
    replicas.tidy_files,
)
_REMOVE: tuple[Stage, ...] = (
    rollouts.end_rollouts,
    processes.shut_down,
    traffic.close_traffic,
    rollouts.drop_routes,
    replicas.tidy_files,
    rollouts.forget,
)


def plan(desired: Desired, observed: Observed, now: float) -> Plan:
    """The steps to take now. An empty plan that waits for nothing means that all is as it should be.

    Stages are gone through in order, and the first that has steps is what is done: what serves now comes
    before what is new.
    """
    view = View(desired, observed, now)
    stages = _REMOVE if desired.removed else _KEEP if desired.paused else _CHANGE
    for stage in stages:
        steps = tuple(stage(view))
        if steps:
            return Plan(steps, now, tuple(view.waiting), tuple(view.needed))
    return Plan((), view.wake_at, tuple(view.waiting), tuple(view.needed))
