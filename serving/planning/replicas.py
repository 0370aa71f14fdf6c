"""Bringing replicas up to what is routed, and letting go of what is not."""

from __future__ import annotations

from collections.abc import Iterator

from registry.deployments import Loaded, RolloutState
from serving.engine import Observation, Phase
from serving.planning.accounts import attempts_key
from serving.planning.view import View
from serving.state import Apply, Finish, Load, Step, Stop, Unload, Unstage, route_map

MOST_RESYNCS = 3  # failures to bring a booted replica up to date, before it is started anew


def bring_up_to_date(view: View) -> Iterator[Step]:
    """Give each ready replica the routed versions, and then the map; until then it answers nobody new."""
    for index, seen in view.serving():
        if view.is_up_to_date(seen):
            continue
        lacking = next((v for v in view.routed() if not view.is_usable(seen, v)), None)
        if lacking is None:
            yield Apply(index, route_map(view.observed.table, view.observed.fence))
        else:
            yield from _resync(view, index, seen, lacking)


def _resync(view: View, index: int, seen: Observation, lacking: Loaded) -> Iterator[Step]:
    key = attempts_key(replica=index, ref=lacking.ref)
    failed = view.observed.attempts.get(key)
    if failed is not None and failed.count >= MOST_RESYNCS:
        yield Stop(index, f"{lacking.ref} could not be brought up again: {failed.reason}")
    elif lacking.digest not in view.observed.staged:
        yield from view.stage(lacking)
    elif view.may_try(key, f"replica {index}: {lacking.ref}"):
        yield view.bring(index, seen, lacking)


def finish_live(view: View) -> Iterator[Step]:
    """Live: whatever may still answer somebody has the map. A silent replica may, so it must go first."""
    newest = {index for index, _ in view.up_to_date()}
    answering = {index for index, seen in view.replicas_in(Phase.READY) if seen.map}
    if not newest or answering - newest or view.replicas_in(Phase.SILENT):
        return
    front = view.observed.front
    if front is not None and not (front.is_running and front.routed and set(front.routed) <= newest):
        return
    for rollout in view.observed.open.values():
        if rollout.state is RolloutState.FLIPPED:
            yield Finish(rollout, RolloutState.LIVE)


def warm_previous(view: View) -> Iterator[Step]:
    """Load again, after a restart, what a rollback would go to. Nobody waits for it."""
    for index, seen in view.up_to_date():
        for version in view.previous():
            key = attempts_key(replica=index, ref=version.ref)
            if version.ref in seen.models or key in view.observed.attempts:
                continue
            if version.digest in view.observed.staged:
                yield Load(index, version)
            else:
                yield from view.stage(version)


def unload_unneeded(view: View) -> Iterator[Step]:
    needed = {version.ref for version in (*view.routed(), *view.previous(), *view.coming())}
    for index, seen in view.up_to_date():
        for ref in seen.models:
            if ref in needed or (seen.map and ref in seen.map.open):
                continue
            if seen.in_flight.get(ref):
                view.wait(f"replica {index}: {ref} is still answering")
            else:
                yield Unload(index, ref)


def tidy_files(view: View) -> Iterator[Step]:
    """Remove files only when no process can read them any more: vLLM reads an evicted adapter again."""
    settled = (Phase.ABSENT, Phase.DEAD, Phase.READY)
    if any(seen.phase not in settled for seen in view.observed.replicas.values()):
        return
    needed = {version.digest for version in (*view.routed(), *view.previous(), *view.coming())}
    for seen in view.observed.replicas.values():
        if seen.fingerprint:
            needed.add(seen.fingerprint.partition("/")[0])
    paths = [path for seen in view.observed.replicas.values() for path in seen.models.values()]
    for digest in view.observed.staged - needed:
        if not any(digest.removeprefix("sha256:") in path for path in paths):
            yield Unstage(digest)
