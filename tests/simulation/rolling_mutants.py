"""Broken variants of a rollout. A simulation that does not notice them proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serving import planning
from serving.middleware import Fence, Switchboard
from serving.planning import processes, replicas, rollouts, traffic
from serving.planning.view import View
from serving.state import Apply, Finish, Flip, RolloutState, Route, Step, Stop, Unload, route_map

Patch = pytest.MonkeyPatch


def flip_before_every_replica_has_it(patch: Patch) -> None:
    """No barrier: the route is moved when one replica has the version, and every replica is told."""

    def at_once(view: View, rollout: Any, version: Any) -> Iterator[Step]:
        ready = view.serving()
        if any(view.is_usable(seen, version) for _, seen in ready):
            yield Flip(rollout)
        elif ready and view.may_try(f"rollout/{rollout.id}", ""):
            yield view.bring(ready[0][0], ready[0][1], version, rollout)

    def tell_all(view: View) -> Iterator[Step]:
        for index, seen in view.serving():
            if seen.map is not None and not view.is_up_to_date(seen):
                yield Apply(index, route_map(view.observed.table, view.observed.fence))
        yield from bring_up(view)

    bring_up = replicas.bring_up_to_date
    patch.setattr(rollouts, "_bring_everywhere", at_once)
    _replace_stage(patch, replicas.bring_up_to_date, tell_all)


def take_maps_from_anybody(patch: Patch) -> None:
    """No fence: a replica takes what a controller sends that leads no more."""

    def checked(self: Switchboard, fence: Fence, boot: str) -> None:
        return

    def apply(self: Switchboard, new: Any, boot: str) -> None:
        self.map = new

    patch.setattr(Switchboard, "_check_authority", checked)
    patch.setattr(Switchboard, "apply", apply)


def unload_what_still_answers(patch: Patch) -> None:
    """Unload, and with that remove the files, before the last answer has ended."""
    patch.setattr(Switchboard, "check_unload", lambda self, name: None)

    def at_once(view: View) -> Iterator[Step]:
        needed = {v.ref for v in (*view.routed(), *view.previous(), *view.coming())}
        for index, seen in view.up_to_date():
            for ref in seen.models:
                if ref not in needed and not (seen.map and ref in seen.map.open):
                    yield Unload(index, ref)

    _replace_stage(patch, replicas.unload_unneeded, at_once)


def route_before_the_probe(patch: Patch) -> None:
    """What was loaded counts as able to serve."""
    patch.setattr(
        View, "is_usable", lambda self, seen, version: version.ref == seen.base or version.ref in seen.models
    )


def report_live_before_every_replica_has_the_map(patch: Patch) -> None:
    """The first replica with the new map is enough."""

    def early(view: View) -> Iterator[Step]:
        if view.up_to_date():
            for rollout in view.observed.open.values():
                if rollout.state is RolloutState.FLIPPED:
                    yield Finish(rollout, RolloutState.LIVE)

    _replace_stage(patch, replicas.bring_up_to_date, _one_by_one(replicas.bring_up_to_date))
    _replace_stage(patch, replicas.finish_live, early)


def _one_by_one(stage: Any) -> Any:
    """Only the first step at a time, as on a busy machine; what comes next is decided anew."""

    def first(view: View) -> Iterator[Step]:
        if not view.up_to_date() or not any(
            rollout.state is RolloutState.FLIPPED for rollout in view.observed.open.values()
        ):
            yield from list(stage(view))[:1]

    return first


def drain_what_the_proxy_still_sends_to(patch: Patch) -> None:
    """A replica refuses requests before the proxy knows."""
    patch.setattr(View, "is_unrouted", lambda self, index, seen: True)


def stop_without_draining(patch: Patch) -> None:
    """Running answers are not waited for."""

    def at_once(view: View, index: int, seen: Any) -> Iterator[Step]:
        yield Stop(index, "now")

    patch.setattr(processes, "_finish_draining", at_once)


def route_to_what_has_no_map(patch: Patch) -> None:
    """Ready counts as able to answer."""

    def hasty(view: View) -> Iterator[Step]:
        front = view.observed.front
        target = {index: str(seen.endpoint) for index, seen in view.serving()}
        if front is not None and target and target != dict(front.routed):
            yield Route(target)

    _replace_stage(patch, traffic.route_traffic, lambda view: iter(()))
    _replace_stage(patch, replicas.bring_up_to_date, _after(hasty, replicas.bring_up_to_date))


def _after(first: Any, then: Any) -> Any:
    def both(view: View) -> Iterator[Step]:
        steps = list(first(view))
        yield from steps or then(view)

    return both


def _replace_stage(patch: Patch, old: Any, new: Any) -> None:
    for name in ("_KEEP", "_CHANGE"):
        stages = getattr(planning, name)
        patch.setattr(planning, name, tuple(new if stage is old else stage for stage in stages))
