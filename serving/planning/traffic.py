"""To which replicas the proxy sends new requests."""

from __future__ import annotations

from collections.abc import Iterator

from serving.engine import Phase
from serving.planning.accounts import FRONT_KEY
from serving.planning.view import View
from serving.state import CloseFront, Route, Step


def route_traffic(view: View) -> Iterator[Step]:
    """Send requests to what has the newest map, and to nothing else as soon as there is such a replica.

    One that waits for a newer map of the same setup keeps its traffic: it is given that in a moment, and no
    promotion is reported live before.
    """
    front = view.observed.front
    if front is None:
        return
    newest = {index: seen.endpoint for index, seen in view.up_to_date() if index not in view.leaving}
    kept = {
        index: seen.endpoint
        for index, seen in view.serving()
        if seen.map and index in front.routed and index not in view.leaving
    }
    found = {**kept, **newest} if newest else {**front.routed}
    target = {index: endpoint for index, endpoint in found.items() if endpoint and index not in view.leaving}
    if front.is_running and target == dict(front.routed):
        return
    if view.may_try(FRONT_KEY, "the proxy"):
        yield Route(target)


def close_traffic(view: View) -> Iterator[Step]:
    """Take out what is about to end; end the proxy after the last of them."""
    front = view.observed.front
    if front is None:
        return
    if any(seen.phase is not Phase.ABSENT for seen in view.observed.replicas.values()):
        if front.routed and front.is_running:
            yield Route({})
    elif front.is_running:
        yield CloseFront()
